set terminal svg size 900,600
set samples 3000
set isosamples 120,120
f(x) = x > 0.001 || x < -0.001 ? sin(x) / x : 1
plot [-40:40] f(x), f(x) ** 2, sin(x) * exp(-abs(x) / 20), besj0(x)
set pm3d
splot [-12:12][-12:12] f(sqrt(x * x + y * y)) with pm3d
