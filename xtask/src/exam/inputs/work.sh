set -e
fact() { if [ "$1" -lt 2 ]; then echo 1; else echo $(( $1 * $(fact $(( $1 - 1 ))) )); fi; }
fact 4
i=0; while [ $i -lt 20 ]; do case $((i % 4)) in 0) a="$a x";; 1|2) a="${a}y";; *) a=${a%y};; esac; i=$((i + 1)); done; echo "$a" "${a#* }" "${#a}"
for f in text.*; do printf '%s %05d\n' "$f" 42; done
read -r line < text.txt; IFS=' '; set -- $line; echo "$2 $1" | { read -r x; echo "got $x"; }
trap 'echo bye' EXIT; cat <<END | (while read -r l; do echo "[$l]"; done)
some $i lines
of `echo text`
END
