;;; work.el --- calls, hash tables, buffers  -*- lexical-binding: t -*-
(defun work-fib (n) (if (< n 2) n (+ (work-fib (- n 1)) (work-fib (- n 2)))))
(byte-compile 'work-fib)

(defun work-words (count)
  (let ((seed 42) (counts (make-hash-table :test 'equal)) (most nil))
    (dotimes (_ count)
      (setq seed (mod (* seed 16807) 2147483647))
      (let ((word (format "w%x" (mod seed 5000))))
        (puthash word (1+ (gethash word counts 0)) counts)))
    (maphash (lambda (word n) (push (cons n word) most)) counts)
    (car (sort most (lambda (a b) (or (> (car a) (car b)) (and (= (car a) (car b)) (string< (cdr a) (cdr b)))))))))

(with-temp-buffer
  (dotimes (i 20000) (insert (format "line %d of some text that is read\n" i)))
  (goto-char (point-min))
  (let ((found 0))
    (while (re-search-forward "\\(\\w+\\) 1\\([0-9]*\\)7 of" nil t) (setq found (1+ found)))
    (message "%s %s %d" (work-fib 25) (work-words 100000) found)))
