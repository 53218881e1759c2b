# Words counted, and numbers folded by a function of its own.
function weigh(n, i) {
    for (i = 0; i < 3; i++) n = (n * 31 + i) % 1000003
    return n
}
{
    for (i = 1; i <= NF; i++) {
        counts[$i]++
        sum = weigh(sum + length($i))
    }
}
END {
    for (word in counts) if (counts[word] > most || (counts[word] == most && word < best)) { most = counts[word]; best = word }
    print best, most, sum
}
