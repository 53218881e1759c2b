# Vectors, closures, a linear model, strings.
fib <- function(n) if (n < 2) n else fib(n - 1) + fib(n - 2)
cat(fib(24), "\n")
seed <- (1:200000 * 7919) %% 5003
words <- sprintf("w%x", as.integer(seed))
counts <- sort(table(words), decreasing = TRUE)
cat(length(counts), max(counts), "\n")
frame <- data.frame(y = (1:50000 * 31) %% 1009, x = 1:50000, z = seed[1:50000])
cat(format(coef(lm(y ~ x + z, frame)), digits = 6), "\n")
m <- matrix(seed[1:90000], 300)
cat(format(sum(solve(m %*% t(m) + diag(300))), digits = 4), "\n")
