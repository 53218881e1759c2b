#lang racket/base
;; Calls, closures, hash tables and a sort.
(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))

(define (words count)
  (define counts (make-hash))
  (for/fold ([seed 42]) ([_ (in-range count)])
    (hash-update! counts (number->string (modulo seed 5000) 16) add1 0)
    (modulo (* seed 16807) 2147483647))
  (car (sort (hash->list counts)
             (lambda (a b) (or (> (cdr a) (cdr b)) (and (= (cdr a) (cdr b)) (string<? (car a) (car b))))))))

(for ([_ (in-range (string->number (vector-ref (current-command-line-arguments) 0)))])
  (printf "~a ~a\n" (fib 31) (words 200000)))
