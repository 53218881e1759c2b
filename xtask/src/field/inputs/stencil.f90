! A stencil over a grid and a reduction, each a parallel region; contained procedures and array expressions.
program stencil
  implicit none
  integer, parameter :: side = 700, steps = 220
  double precision, allocatable :: a(:, :), b(:, :)
  integer :: i
  allocate (a(side, side), b(side, side))
  a = 0
  a(:, 1) = 100
  b = a
  do i = 1, steps
    call step(a, b)
    call step(b, a)
  end do
  print '(i0)', above(a, 1d0)
contains
  subroutine step(from, to)
    double precision, intent(in) :: from(:, :)
    double precision, intent(inout) :: to(:, :)
    integer :: j
    !$omp parallel do schedule(static)
    do j = 2, side - 1
      to(2:side - 1, j) = 0.25d0*(from(1:side - 2, j) + from(3:side, j) + from(2:side - 1, j - 1) + from(2:side - 1, j + 1))
    end do
    !$omp end parallel do
  end subroutine

  integer function above(grid, bound)
    double precision, intent(in) :: grid(:, :), bound
    integer :: j
    above = 0
    !$omp parallel do reduction(+:above)
    do j = 1, side
      above = above + count(grid(:, j) > bound)
    end do
    !$omp end parallel do
  end function
end program
