-- A plain recursion whose frames are GHC's own: the stack pointer of C's convention stays where it is.
module Main where

import System.Environment (getArgs)

fib :: Int -> Integer
fib n = if n < 2 then toInteger n else fib (n - 1) + fib (n - 2)

main :: IO ()
main = do
  [n] <- getArgs
  print (fib (read n))
