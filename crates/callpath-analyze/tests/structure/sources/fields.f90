! Fortran: slices that are copied for a call, internal procedures, statement functions, array expressions.

! As in S3D: an explicit-shape argument that is not contiguous is copied by a loop that no line of the source has.
subroutine rhsf(grad, nx, ny, species)
  implicit none
  integer :: nx, ny, species, m
  real :: grad(nx, species, ny)
  external :: gradient
  do m = 1, species !@ loop species: rhsf
    call gradient(grad(2, m, :)) !@ O1-3 loop copy: rhsf > species
  end do
end subroutine

subroutine hosts(n)
  implicit none
  integer :: n, i
  external :: out
  do i = 1, n !@ loop own: hosts
    call out(i)
    call inner(i)
  end do
contains
  subroutine inner(k)
    integer :: k, j
    do j = 1, k !@ O0 loop inner: inner; O1+ loop inner: hosts > own > inner()
      call out(j)
    end do
  end subroutine
end subroutine

subroutine statement(n, a)
  implicit none
  integer :: n, i
  real :: a(n), square, x
  external :: use_real, out
  square(x) = x * x + 1.0
  call out(n)
  call out(n + 1)
  do i = 1, n !@ loop uses: statement
    call use_real(square(a(i)))
  end do
end subroutine

subroutine arrays(n, a, b)
  implicit none
  integer :: n
  real :: a(n), b(n)
  a = a + b !@ loop whole: arrays
  where (a > 0) !@ loop masked: arrays
    b = a
  end where
end subroutine

subroutine waits(n)
  implicit none
  integer :: n
  logical, external :: ready
  do while (ready(n)) !@ loop while: waits
    n = n + 1
  end do
  do !@ O0 loop exits: waits
    if (ready(n + 1)) exit !@ O1+ loop exits: waits
    n = n + 2
  end do
end subroutine
