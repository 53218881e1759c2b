//! Five inputs of a program that have it do different work, for what is learned from one and used for another.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{bail, ensure};

use super::inputs;
use super::prepared::{Prepared, Stdin, installed, write};

/// So many inputs a program has.
pub const COUNT: usize = 5;

/// Makes one of a program's inputs in a directory: `which` is below [`COUNT`]. Each takes a second or so.
pub fn prepare(program: &str, directory: &Path, which: usize) -> anyhow::Result<Prepared> {
    match program {
        "xz" => compressor(("xz", &["-9", "-T1", "-k", "-c"]), directory, which, 1_500_000),
        "bzip2" => compressor(("bzip2", &["-9", "-k", "-c"]), directory, which, 6_000_000),
        "zstd" => compressor(("zstd", &["-19", "-q", "-k", "-c"]), directory, which, 1_500_000),
        "sqlite3" => {
            write(directory, "script.sql", SQL[which])?;
            installed("sqlite3", &[":memory:", ".read script.sql"])
        }
        "perl" => {
            write(directory, "script.pl", PERL[which])?;
            installed("perl", &["script.pl"])
        }
        "python3" => {
            write(directory, "script.py", PYTHON[which])?;
            installed("python3", &["-S", "script.py"])
        }
        "openssl" => {
            write(directory, "text", inputs::text(30_000_000))?;
            write(directory, "line", inputs::text(1000))?;
            installed("openssl", OPENSSL[which])
        }
        "hmmer" => hmmer(directory, which),
        "povray" => {
            write(directory, "scene.pov", format!("{SCENE_HEAD}{}\n#declare I=I+1;\n#end\n", SHAPES[which]))?;
            let options = ["+Iscene.pov", "+O/dev/null", "+W320", "+H240", "+A0.1", "+WT2", "-D"];
            installed("povray", &options)
        }
        "xalan" => {
            // The last sheet, which looks all items up for each order, takes longer.
            write(directory, "orders.xml", inputs::xml(if which == 4 { 400 } else { 4_000 }))?;
            let deep = inputs::deep_xsl(60);
            let sheets = [inputs::XSL, COPY_XSL, SORT_XSL, WORDS_XSL, &deep];
            write(directory, "sheet.xsl", sheets[which])?;
            installed("xalan", &["-in", "orders.xml", "-xsl", "sheet.xsl", "-out", "/dev/null"])
        }
        "gnugo" => {
            let (size, level, moves) =
                [("9", "8", 20), ("11", "6", 14), ("13", "8", 8), ("15", "5", 10), ("19", "4", 8)][which];
            let script = format!("boardsize {size}\n{}quit\n", "genmove b\ngenmove w\n".repeat(moves / 2));
            let script = write(directory, "moves", script)?;
            let seed = (which + 1).to_string();
            let mut prepared = installed("gnugo", &["--mode", "gtp", "--level", level, "--seed", &seed])?;
            prepared.stdin = Stdin::File(script);
            Ok(prepared)
        }
        "cc1plus" => compiler(directory, which),
        other => bail!("{other} has no five inputs"),
    }
}

/// Text, noise, one line many times, source code, machine code.
fn compressor(
    (program, options): (&str, &[&str]),
    directory: &Path,
    which: usize,
    len_bytes: usize,
) -> anyhow::Result<Prepared> {
    let prepared = installed(program, &[options, &["data"]].concat())?;
    let mut data = match which {
        0 => inputs::text(len_bytes),
        1 => inputs::noise(len_bytes),
        2 => b"the same line again and again, a compressor's joy\n".repeat(len_bytes / 50),
        3 => inputs::cpp((len_bytes / 1100) as u32).into_bytes(),
        _ => std::fs::read("/usr/lib/x86_64-linux-gnu/libc.so.6").or_else(|_| std::fs::read(&prepared.program))?,
    };
    data.truncate(len_bytes);
    write(directory, "data", data)?;
    Ok(prepared)
}

fn hmmer(directory: &Path, which: usize) -> anyhow::Result<Prepared> {
    const OPTIONS: [&[&str]; COUNT] = [
        &["--max"],
        &["-E", "1000"],
        &["--nobias", "--F1", "0.5"],
        &["--domE", "10", "--nonull2"],
        &["-T", "5", "--F2", "0.5"],
    ];
    write(directory, "family.sto", inputs::alignment())?;
    write(directory, "proteins.fa", inputs::proteins(if which == 0 { 400 } else { 9_000 }))?;
    let built = installed("hmmbuild", &["--amino", "family.hmm", "family.sto"])?;
    let mut command = Command::new(built.program);
    command.args(built.arguments).current_dir(directory).stdout(Stdio::null());
    ensure!(command.status()?.success(), "hmmbuild failed");
    installed("hmmsearch", &[&["--cpu", "0", "--seed", "1"], OPTIONS[which], &["family.hmm", "proteins.fa"]].concat())
}

fn compiler(directory: &Path, which: usize) -> anyhow::Result<Prepared> {
    write(directory, "source.cpp", CPP[which])?;
    let mut preprocess = Command::new("g++");
    preprocess.args(["-E", "-std=c++17", "source.cpp", "-o", "source.ii"]).current_dir(directory);
    ensure!(preprocess.status()?.success(), "g++ -E failed");
    let name = Command::new("g++").arg("-print-prog-name=cc1plus").output()?;
    let arguments = ["-fpreprocessed", "-std=c++17", "-O1", "-quiet", "source.ii", "-o", "/dev/null"];
    Ok(Prepared {
        program: String::from_utf8(name.stdout)?.trim().into(),
        arguments: arguments.map(str::to_owned).into(),
        environment: vec![],
        stdin: Stdin::Nothing,
    })
}

const SQL: [&str; COUNT] = [
    "CREATE TABLE t(a INTEGER PRIMARY KEY, b INTEGER, c TEXT);
     WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<300000) INSERT INTO t SELECT i, i*7919%1009, printf('%x', i*31) FROM n;
     SELECT b, count(*), max(c) FROM t GROUP BY b ORDER BY 2 LIMIT 3;",
    "CREATE TABLE t(a INTEGER, b INTEGER);
     WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<150000) INSERT INTO t SELECT i, i*104729%9973 FROM n;
     CREATE INDEX by_b ON t(b, a);
     SELECT count(*) FROM t x JOIN t y ON y.b=x.b AND y.a<x.a; SELECT sum(a) FROM t WHERE b IN (SELECT b FROM t WHERE a<500);",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<200000)
     SELECT sum(length(replace(upper(hex(i)), 'A', 'bb'))), count(DISTINCT substr(i, 2)), sum(i LIKE '%7%3%'), max(trim(i || ' x')) FROM n;",
    "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT UNIQUE);
     BEGIN; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<80000) INSERT INTO t SELECT i, hex(i*i) FROM n; COMMIT;
     UPDATE t SET b = b || '-' || a WHERE a % 3 = 0; DELETE FROM t WHERE a % 5 = 1;
     INSERT OR REPLACE INTO t SELECT a, b || 'x' FROM t WHERE a % 7 = 2; SELECT count(*) FROM t;",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<60000)
     SELECT max(r), min(s) FROM (SELECT row_number() OVER (PARTITION BY i%97 ORDER BY i*7919%1009) r, sum(i) OVER (ORDER BY i ROWS 9 PRECEDING) s FROM n);
     WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<40000) SELECT sum(json_extract(json_array(i, json_object('k', i)), '$[1].k')) FROM n;",
];

const PERL: [&str; COUNT] = [
    "my %c; for my $i (1 .. 900000) { $c{'w' . $i * 7919 % 1009}++ } print join(' ', (sort { $c{$b} <=> $c{$a} || $a cmp $b } keys %c)[0 .. 4]), \"\\n\";",
    "my $t = join ' ', map { chr(97 + $_ % 26) . $_ * 31 % 700 } 1 .. 200000; my $n = () = $t =~ /\\b([a-e]\\d+) [f-z](\\d)\\d* /g; $t =~ s/(\\d+)/$1 + 1/ge; print \"$n \", length $t, \"\\n\";",
    "sub fib { my $n = shift; $n < 2 ? $n : fib($n - 1) + fib($n - 2) } package P; sub new { bless { v => $_[1] }, $_[0] } sub add { $_[0]{v} += $_[1]; $_[0] } package main; my $p = P->new(0); $p->add($_) for 1 .. 300000; print fib(24), \" $p->{v}\\n\";",
    "my $s = ''; for my $i (1 .. 250000) { $s = sprintf('%08.3f|%s', $i / 7, substr($s, 0, 40)); $s = reverse $s if $i % 3 == 0 } my @f = unpack('(A4)*', $s x 2000); print scalar(@f), ' ', join(',', map { ord } split //, pack('N*', 1 .. 9)), \"\\n\";",
    "my @a = map { [$_, $_ * 104729 % 9973, [$_ % 7]] } 1 .. 80000; my @b = sort { $a->[1] <=> $b->[1] or $b->[0] <=> $a->[0] } grep { $_->[2][0] != 3 } @a; my %h; push @{$h{$_->[2][0]}}, $_->[0] for @b; eval { die { n => $_ } } for 1 .. 60000; print join(' ', map { scalar @{$h{$_}} } sort keys %h), \"\\n\";",
];

const PYTHON: [&str; COUNT] = [
    "c = {}\nfor i in range(700000):\n    w = 'w%d' % (i * 7919 % 1009)\n    c[w] = c.get(w, 0) + 1\nprint(sorted(c.items(), key=lambda x: (-x[1], x[0]))[:3])\n",
    "class N:\n    def __init__(self, l, r):\n        self.l, self.r = l, r\n    def weight(self):\n        return 1 + (self.l.weight() + self.r.weight() if self.l else 0)\ndef tree(d):\n    return N(tree(d - 1), tree(d - 1)) if d else N(None, None)\nfor _ in range(8):\n    print(tree(14).weight())\n",
    "x = [0.1 * i for i in range(40)]\nfor _ in range(400):\n    x = [sum((a - b) / (1 + (a - b) ** 2) for b in x) * 0.01 + a for a in x]\nprint(sum(x), sum(i * i % 97 for i in range(900000)))\n",
    "import re\nt = ' '.join(chr(97 + i % 26) + str(i * 31 % 700) for i in range(120000))\nprint(len(re.findall(r'\\b([a-e]\\d+) [f-z](\\d)', t)), len(re.sub(r'\\d+', lambda m: str(int(m[0]) + 1), t)), t.upper().count('A1'), len(t.split()))\n",
    "def g(n):\n    for i in range(n):\n        try:\n            if i % 3 == 0:\n                raise ValueError(i)\n            yield i\n        except ValueError as e:\n            yield -e.args[0]\nprint(sum(g(500000)), 7 ** 20000 % 10 ** 50, (3 ** 30000).bit_length(), bytes(bytearray(range(256)) * 2000)[::7].hex()[:9])\n",
];

const OPENSSL: [&[&str]; COUNT] = [
    &[
        "enc",
        "-aes-256-ctr",
        "-pbkdf2",
        "-pass",
        "pass:x",
        "-S",
        "0011223344556677",
        "-in",
        "line",
        "-out",
        "/dev/null",
        "-iter",
        "1500000",
    ],
    &[
        "enc",
        "-aes-128-cbc",
        "-pbkdf2",
        "-md",
        "sha512",
        "-pass",
        "pass:x",
        "-S",
        "0011223344556677",
        "-in",
        "text",
        "-out",
        "/dev/null",
        "-iter",
        "500000",
    ],
    &["dgst", "-sha3-256", "text"],
    &["dgst", "-sha256", "-hmac", "key", "text"],
    &["genrsa", "4096"],
];

const SCENE_HEAD: &str = "camera { location <0,3,-8> look_at <0,0.5,0> }
light_source { <10,20,-15> rgb 1 }
plane { y,-1 pigment { checker rgb 1 rgb 0.5 } finish { reflection 0.3 } }
#declare I=0;
#while (I<12)
";

const SHAPES: [&str; COUNT] = [
    "sphere { <3*sin(I),sin(I*2)+0.5,3*cos(I)>, 0.7 pigment { bozo } finish { reflection 0.4 phong 1 } }",
    "difference { box { -0.6, 0.6 } cylinder { -y, y, 0.4 } rotate I*30*y translate <3*sin(I),0.5,3*cos(I)> pigment { marble } }",
    "torus { 0.6, 0.2 rotate I*40*x translate <3*sin(I),0.5,3*cos(I)> pigment { wood } normal { bumps 0.3 } }",
    "blob { threshold 0.5 sphere { 0, 0.9, 1 } sphere { x*0.6, 0.8, 1 } translate <3*sin(I),0.5,3*cos(I)> pigment { rgbt <1,0.5,0.2,0.6> } interior { ior 1.3 } }",
    "merge { cone { -0.5*y, 0.7, y, 0.1 } superellipsoid { <0.3,0.3> scale 0.5 } translate <3*sin(I),0.5,3*cos(I)> pigment { gradient y } finish { specular 0.6 } }",
];

const COPY_XSL: &str = "<?xml version=\"1.0\"?>\n<xsl:stylesheet version=\"1.0\" xmlns:xsl=\"http://www.w3.org/1999/XSL/Transform\">
<xsl:template match=\"@*|node()\"><xsl:copy><xsl:apply-templates select=\"@*|node()\"/></xsl:copy></xsl:template></xsl:stylesheet>\n";

const SORT_XSL: &str = "<?xml version=\"1.0\"?>\n<xsl:stylesheet version=\"1.0\" xmlns:xsl=\"http://www.w3.org/1999/XSL/Transform\">
<xsl:output method=\"text\"/><xsl:template match=\"/orders\"><xsl:for-each select=\"order/item\">
<xsl:sort select=\"@price\" data-type=\"number\"/><xsl:sort select=\"name\"/><xsl:number value=\"position()\"/>:<xsl:value-of select=\"name\"/>
</xsl:for-each></xsl:template></xsl:stylesheet>\n";

const WORDS_XSL: &str = "<?xml version=\"1.0\"?>\n<xsl:stylesheet version=\"1.0\" xmlns:xsl=\"http://www.w3.org/1999/XSL/Transform\">
<xsl:output method=\"html\"/><xsl:template match=\"/orders\"><p><xsl:apply-templates select=\"order[count(item) &gt; 3]/item\"/></p></xsl:template>
<xsl:template match=\"item\"><xsl:call-template name=\"shorter\"><xsl:with-param name=\"text\" select=\"string(name)\"/></xsl:call-template></xsl:template>
<xsl:template name=\"shorter\"><xsl:param name=\"text\"/><xsl:choose><xsl:when test=\"string-length($text) &gt; 2\"><b><xsl:value-of select=\"substring($text, 1, 2)\"/></b>
<xsl:call-template name=\"shorter\"><xsl:with-param name=\"text\" select=\"substring($text, 3)\"/></xsl:call-template></xsl:when>
<xsl:otherwise><xsl:value-of select=\"concat($text, format-number(string-length($text), '0.0'))\"/></xsl:otherwise></xsl:choose></xsl:template></xsl:stylesheet>\n";

const CPP: [&str; COUNT] = [
    "#include <map>\n#include <string>\nint main(int n, char **w) { std::map<std::string, int> m; while (n--) m[w[n]]++; return m.size(); }\n",
    "#include <algorithm>\n#include <vector>\nint main(int n, char **) { std::vector<int> v(n); std::stable_sort(v.begin(), v.end(), [](int a, int b) { return b < a; }); return v[0]; }\n",
    "#include <sstream>\nint main(int n, char **w) { std::istringstream in(w[0]); double d = 0; while (in >> d) n += d; std::ostringstream out; out << n; return out.str().size(); }\n",
    "#include <functional>\n#include <memory>\nstruct A { virtual int f() { return 1; } virtual ~A() {} }; struct B : A { int f() override { throw 2; } };\nint main(int n, char **) { std::unique_ptr<A> p(n > 1 ? new A : new B); std::function<int()> f = [&] { return p->f(); }; try { return f(); } catch (int e) { return e; } }\n",
    "template <int N> struct F { static constexpr long v = F<N - 1>::v + F<N - 2>::v; }; template <> struct F<0> { static constexpr long v = 0; }; template <> struct F<1> { static constexpr long v = 1; };\n\
     double g(const double *a, int n) { double s = 0; for (int i = 0; i < n; i++) for (int j = i; j < n; j++) s += a[i] * a[j]; return s; }\n\
     int h(int n) { switch (n % 9) { case 0: return 3; case 1: return h(n / 2); case 5: return n * 7; default: return h(n - 1) + 1; } }\nint main(int n, char **) { double a[9] = {1, 2}; return F<60>::v % 7 + g(a, 9) + h(n); }\n",
];
