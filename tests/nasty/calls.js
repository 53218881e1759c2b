// Known calls: top -> middle -> leaf, and beside -> other.
function leaf(n) {
    let sum = 0;
    for (let i = 0; i < n; i++) sum = (sum + (i ^ (sum >> 3))) | 0;
    return sum;
}
function middle(n) {
    let sum = 0;
    for (let i = 0; i < 100; i++) sum = (sum + leaf(n)) | 0;
    return sum + 1;
}
function top(n) {
    let sum = 0;
    for (let i = 0; i < 10; i++) sum = (sum + middle(n + i)) | 0;
    return sum + 2;
}
function other(n) {
    let sum = 1;
    for (let i = 0; i < n; i++) sum = (Math.imul(sum, 31) + i) | 0;
    return sum;
}
function beside(n) {
    let sum = 0;
    for (let i = 0; i < 1000; i++) sum = (sum + other(n)) | 0;
    return sum + 1;
}
let sink = 0;
for (let i = 0; i < Number(process.argv[2]); i++) sink = (sink + top(10000) + beside(10000)) | 0;
console.log(sink);
process.exit(5);
