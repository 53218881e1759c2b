// Recursion in optimised code, comparators and callbacks below V8's builtins, a regular expression, JSON with toJSON.
function leaf(value) {
  for (let round = 0; round < 12; round++) value = (Math.imul(value, 1664525) + round) | 0;
  return value >>> 20;
}
function tree(depth, value) {
  return depth === 0 ? leaf(value) : tree(depth - 1, value + 1) + tree(depth - 1, value ^ depth);
}
function weigh(one, other) { return leaf(one) - leaf(other); }
function sorted(count) {
  const numbers = Array.from({ length: count }, (_, index) => (index * 7919) % count);
  return numbers.sort(weigh)[0];
}
class Written {
  constructor(value) { this.value = value; }
  toJSON() { return leaf(this.value) + tree(5, this.value); }
}
function written(count) {
  return JSON.stringify(Array.from({ length: count }, (_, index) => new Written(index))).length;
}
function replaced(count) {
  return 'call path '.repeat(count).replace(/[a-z]+/g, (word) => leaf(word.length)).length;
}
const until = Date.now() + Number(process.argv[2]);
let sum = 0;
while (Date.now() < until) sum += tree(14, 1) + sorted(2000) + written(200) + replaced(200);
console.log(sum !== 0);
