set pagination off
set width 0
# Addresses on the stack depend on the length of the environment.
set print frame-arguments none
set args 200
break deep if depth == 0 && number % 10 == 5
commands
silent
print number
backtrace 3
continue
end
run
