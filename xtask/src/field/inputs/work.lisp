;; Calls, hash tables, generic functions; compiled when loaded.
(defun fib (n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))

(defgeneric weigh (thing seed))
(defmethod weigh ((thing integer) seed) (mod (+ (* thing 31) seed) 1000003))
(defmethod weigh ((thing string) seed) (mod (+ (length thing) seed) 1000003))

(defun words (count)
  (let ((counts (make-hash-table :test #'equal)) (seed 42) (sum 0) all)
    (dotimes (i count)
      (setf seed (mod (* seed 16807) 2147483647))
      (let ((word (write-to-string (mod seed 500) :base 16)))
        (incf (gethash word counts 0))
        (setf sum (weigh word (weigh i sum)))))
    (maphash (lambda (word n) (push (cons n word) all)) counts)
    (setf all (sort all (lambda (a b) (or (> (car a) (car b)) (and (= (car a) (car b)) (string< (cdr a) (cdr b)))))))
    (list (first all) sum)))

(dotimes (i (parse-integer (car (last sb-ext:*posix-argv*))))
  (format t "~a ~a~%" (fib 32) (words 60000)))
