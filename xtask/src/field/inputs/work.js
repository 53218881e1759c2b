// Calls, closures, maps, regular expressions and sorts; for Node, Bun and Deno.
const rounds = Number((globalThis.Deno ? Deno.args : process.argv.slice(2))[0]);

function fib(n) {
  return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

function words(count) {
  let seed = 42;
  const counts = new Map();
  for (let i = 0; i < count; i++) {
    seed = (seed * 16807) % 2147483647;
    const word = "w" + (seed % 5000).toString(16);
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))[0];
}

function objects(count) {
  const all = [];
  for (let i = 0; i < count; i++) all.push({ id: i, name: `n${(i * 7919) % 1009}`, tags: [i % 3, i % 5] });
  const text = JSON.stringify(all);
  return JSON.parse(text).filter((one) => /n\d*7$/.test(one.name)).reduce((sum, one) => sum + one.tags[1], 0);
}

for (let round = 0; round < rounds; round++) console.log(fib(29), words(200000).join(" "), objects(40000));
