! Internal procedures: nested in the procedure that contains them, and inlined into it at -O2.
module shapes
contains
  subroutine outer(x, y)
    real :: x(:), y
    y = 0
    call inner(2.0)
  contains
    subroutine inner(s)
      real, intent(in) :: s
      integer :: i
      do i = 1, size(x)
        y = y + square(x(i)) * s
      end do
    end subroutine
    real function square(v)
      real, intent(in) :: v
      square = v * v
    end function
  end subroutine
end module
program main
  use shapes
  real :: a(100), y
  integer :: i
  do i = 1, 100
    a(i) = i
  end do
  call outer(a, y)
  print *, y
end program
