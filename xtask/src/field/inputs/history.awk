# A stream for git fast-import: 1,500 commits over six files of 400 lines.
function line(file, at) { return "file " file " line " at " holds " (at * 7919 + versions[file, at] * 104729) % 100003 "\n" }
BEGIN {
    for (commit = 1; commit <= 1500; commit++) {
        print "commit refs/heads/work"
        print "committer Field <field@example.org> " 1700000000 + commit * 60 " +0000"
        message = "change number " commit "\n"
        print "data " length(message)
        printf "%s", message
        for (file = 1; file <= 6; file++) {
            if (commit > 1 && (commit + file) % 3) continue
            content = ""
            for (at = 1; at <= 400; at++) {
                if ((at * commit) % 37 == file) versions[file, at]++
                content = content line(file, at)
            }
            name = commit % 50 == 0 ? "moved-" file : "file-" file
            print "M 644 inline " name ".txt"
            print "data " length(content)
            printf "%s\n", content
        }
        print ""
    }
}
