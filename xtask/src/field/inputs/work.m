% Matrices, an interpreted loop, cells and strings.
1;
function n = steps(n)
  for i = 1:100000
    n = mod(n * 31 + i, 1000003);
  end
end

a = reshape(mod((1:160000) * 7919, 1009), 400, 400);
b = a' * a / 1009;
[q, r] = qr(b);
printf("%.3f\n", abs(r(1, 1)));
printf("%d\n", steps(7));
words = arrayfun(@(i) sprintf("w%x", mod(i * 7919, 5000)), 1:20000, "UniformOutput", false);
printf("%d\n", numel(unique(words)));
