;; Calls, closures, hash tables and a sort: the part of Scheme that guile and Chez share.
(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))

(define (numbers count seed)
  (let loop ((i 0) (seed seed) (all '()))
    (if (= i count)
        all
        (loop (+ i 1) (modulo (* seed 16807) 2147483647) (cons (modulo seed 100003) all)))))

(define (merge-lists a b)
  (cond ((null? a) b)
        ((null? b) a)
        ((< (car a) (car b)) (cons (car a) (merge-lists (cdr a) b)))
        (else (cons (car b) (merge-lists a (cdr b))))))

(define (split all)
  (if (or (null? all) (null? (cdr all)))
      (values all '())
      (call-with-values (lambda () (split (cddr all)))
        (lambda (a b) (values (cons (car all) a) (cons (cadr all) b))))))

(define (sorted all)
  (if (or (null? all) (null? (cdr all)))
      all
      (call-with-values (lambda () (split all))
        (lambda (a b) (merge-lists (sorted a) (sorted b))))))

(define (work rounds)
  (if (> rounds 0)
      (begin
        (display (fib 30))
        (display " ")
        (display (list-ref (sorted (numbers 20000 (+ 42 rounds))) 10000))
        (newline)
        (work (- rounds 1)))))
