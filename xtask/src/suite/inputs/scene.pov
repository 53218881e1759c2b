camera { location <0,3,-8> look_at <0,0.5,0> }
light_source { <10,20,-15> rgb 1 }
plane { y,-1 pigment { checker rgb 1 rgb 0.5 } finish { reflection 0.3 } }
#declare I=0;
#while (I<12)
  sphere {
    <3*sin(I),sin(I*2)+0.5,3*cos(I)>, 0.7
    texture { pigment { bozo color_map { [0 rgb <1,0,0>] [1 rgb <0,0,1>] } } finish { reflection 0.4 phong 1 } }
  }
  #declare I=I+1;
#end
