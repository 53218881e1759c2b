//! Synthetic profiles: of a stripped compressor, of a C++ renderer, of a build.

#![allow(dead_code, reason = "each user takes its part")]

use callpath_db::{CpuTime, Metric, MetricId, NodeId, ProcessInfo, Profile, Scope, ScopeKind};

/// A profile under construction: a path is names from the outermost frame, `module!name`, a module holding until the
/// next one; `@12` is a loop at that line, `~` before a name makes it inlined, `?` partial.
struct Maker {
    profile: Profile,
    thread: NodeId,
}

impl Maker {
    fn new(program: &str, command: &[&str]) -> Self {
        let mut profile = Profile::new(vec![Metric::of(MetricId::CPU_TIME), Metric::of(MetricId::SAMPLES)]);
        profile.info.program = program.into();
        profile.info.command = command.iter().map(|word| word.to_string()).collect();
        profile.info.host = "host".into();
        profile.info.exit = Some("exit status 0".into());
        profile.info.directory = format!("{program}-4242.callpath");
        Maker { profile, thread: NodeId::ROOT }
    }

    fn process(&mut self, name: &str, pid: u64) {
        let name_id = self.profile.strings.intern(name);
        let scope = Scope { discriminator: pid, ..Scope::new(ScopeKind::Process, name_id) };
        self.thread = self.profile.tree.child(NodeId::ROOT, scope);
        let process = ProcessInfo { pid: pid as u32, name: name.into(), ..ProcessInfo::default() };
        self.profile.info.processes.push(process);
    }

    fn thread(&mut self, name: &str, tid: u64) {
        let above = match self.profile.tree.scope(self.thread).kind {
            ScopeKind::Thread => self.profile.tree.parent(self.thread).unwrap_or(NodeId::ROOT),
            _ => self.thread,
        };
        let name = self.profile.strings.intern(name);
        let scope = Scope { discriminator: tid, ..Scope::new(ScopeKind::Thread, name) };
        self.thread = self.profile.tree.child(above, scope);
    }

    fn path(&mut self, path: &str, samples: u64) {
        let mut node = self.thread;
        let mut module = None;
        let strings = &mut self.profile.strings;
        for step in path.split(" | ") {
            let name = match step.split_once('!') {
                Some((new, name)) => {
                    module = Some(strings.intern(new));
                    name
                }
                None => step,
            };
            let mut scope = if let Some(line) = name.strip_prefix('@') {
                let mut scope = Scope::new(ScopeKind::Loop, strings.intern("loop"));
                scope.line = line.parse().ok();
                scope.file = Some(strings.intern("src/coder/encoder.c"));
                scope
            } else if let Some(name) = name.strip_prefix('~') {
                Scope::new(ScopeKind::Inlined, strings.intern(name))
            } else if let Some(name) = name.strip_prefix('?') {
                Scope::new(ScopeKind::Partial, strings.intern(name))
            } else {
                Scope::new(ScopeKind::Procedure, strings.intern(name))
            };
            scope.module = module.filter(|_| scope.kind != ScopeKind::Partial);
            node = self.profile.tree.child(node, scope);
        }
        self.profile.tree.add(node, &[samples * 1_000_100, samples]);
        self.profile.quality.taken += samples;
        if path.starts_with('?') {
            self.profile.quality.partial += samples
        } else {
            self.profile.quality.full += samples
        }
    }

    fn done(mut self) -> Profile {
        let taken = self.profile.quality.taken;
        self.profile.quality.overhead_ns = taken * 3_900;
        self.profile.quality.links.valid = taken * 11;
        self.profile.info.recorder_cpu_ns = Some(40_000_000);
        self.profile.info.cpu_time_by_kernel = Some(CpuTime { user_ns: taken * 904_000, system_ns: taken * 100_000 });
        self.profile.info.duration_ns = taken * 1_010_000;
        self.profile
    }
}

/// A stripped compressor.
pub(crate) fn xz() -> Profile {
    let mut make = Maker::new("xz", &["xz", "-9", "-k", "big.tar"]);
    make.process("xz", 4242);
    make.thread("xz", 4242);
    let outer = "xz!_start | libc.so.6!__libc_start_main | __libc_start_call_main | xz!xz+0x2b80 | xz+0x4a10 | xz+0x5e30 \
                 | liblzma.so.5!lzma_code | liblzma.so.5+0x7610 | liblzma.so.5+0xf2a0 | liblzma.so.5+0x113c0 \
                 | liblzma.so.5+0x14b20";
    make.path(outer, 12);
    make.path(&format!("{outer} | liblzma.so.5+0x15f90"), 912);
    make.path(&format!("{outer} | liblzma.so.5+0x15f90 | @312"), 230);
    make.path(&format!("{outer} | liblzma.so.5+0x15f90 | liblzma.so.5+0x13e40"), 310);
    make.path(&format!("{outer} | liblzma.so.5+0x15f90 | liblzma.so.5+0x13e40 | liblzma.so.5+0x13110"), 2205);
    make.path(&format!("{outer} | liblzma.so.5+0x15f90 | liblzma.so.5+0x13e40 | libc.so.6!__memcmp_avx2_movbe"), 170);
    make.path(&format!("{outer} | liblzma.so.5+0x16a70"), 98);
    make.path(&format!("{outer} | liblzma.so.5+0x16a70 | liblzma.so.5+0x16c00"), 40);
    make.path(
        "xz!_start | libc.so.6!__libc_start_main | __libc_start_call_main | xz!xz+0x2b80 | xz+0x4a10 | libc.so.6!read",
        61,
    );
    make.path(
        "xz!_start | libc.so.6!__libc_start_main | __libc_start_call_main | xz!xz+0x2b80 | xz+0x4a10 | libc.so.6!write",
        22,
    );
    make.path("?partial paths | liblzma.so.5!liblzma.so.5+0x9000", 3);
    let mut profile = make.done();
    let note = "Samples come from POSIX per-thread timers, which the kernel's tick caps at 250 a second.";
    profile.info.notes.push(note.into());
    let note = "Install liblzma5-dbgsym to name the procedures of liblzma.so.5, and xz-utils-dbgsym for xz.";
    profile.info.notes.push(note.into());
    profile
}

/// Long names, deep recursion, several threads.
pub(crate) fn cpp() -> Profile {
    let mut make = Maker::new("render", &["./render", "--scene", "living room", "--threads", "4"]);
    make.process("render", 77);
    make.thread("render", 77);
    let recursion = vec!["Bvh::build(std::vector<Triangle, std::allocator<Triangle> >&, int, int)"; 34];
    let main = format!("render!_start | libc.so.6!__libc_start_main | render!main | {}", recursion.join(" | "));
    for depth in 4..34 {
        let cut: Vec<&str> = main.split(" | ").take(3 + depth).collect();
        make.path(&cut.join(" | "), 9);
    }
    make.path(
        &format!(
            "{main} | ~std::__introsort_loop<__gnu_cxx::__normal_iterator<Triangle*, std::vector<Triangle, \
         std::allocator<Triangle> > >, long, __gnu_cxx::__ops::_Iter_comp_iter<Bvh::build(std::vector<Triangle, \
         std::allocator<Triangle> >&, int, int)::'lambda'(Triangle const&, Triangle const&)> >"
        ),
        120,
    );
    for tid in 78..82 {
        make.thread("worker", tid);
        let mut path = String::from(
            "libc.so.6!clone3 | start_thread | libstdc++.so.6!execute_native_thread_routine | \
                                     render!std::thread::_State_impl<std::thread::_Invoker<std::tuple<void (*)(Scene const&, \
                                     Image&, int, int), std::reference_wrapper<Scene const>, std::reference_wrapper<Image>, \
                                     int, int> > >::_M_run()",
        );
        for _ in 0..12 {
            path += " | trace(Scene const&, Ray const&, int) | shade(Scene const&, Hit const&, int)";
            make.path(&path, 14);
            make.path(&format!("{path} | ~Vec3::normalize() const | libm.so.6!sqrtf32"), 3);
            make.path(&format!("{path} | intersect(Bvh const&, Ray const&) | @88"), 25 + tid % 3);
        }
    }
    let mut profile = make.done();
    profile.quality.taken += 2;
    profile.quality.dropped.insert("no room".into(), 2);
    profile
}

/// Several processes, hostile names.
pub(crate) fn many() -> Profile {
    let mut make = Maker::new("make", &["make", "-j2", "CC=gcc -O2"]);
    make.process("make", 10);
    make.thread("make", 10);
    make.path("make!_start | main | job_next | \x1b[31mred\x07\n", 30);
    for pid in 11..14 {
        make.process("cc1", pid);
        make.thread("cc1", pid);
        for (pass, samples) in [("parse", 200), ("optimize", 700), ("emit", 100), ("tiny", 1)] {
            make.path(
                &format!("cc1!_start | libc.so.6!__libc_start_main | cc1!main | {pass}_all | {pass}_one"),
                samples,
            );
        }
    }
    make.done()
}

/// As many nodes as asked, in paths of some forty frames.
pub(crate) fn large(nodes: usize) -> Profile {
    let mut make = Maker::new("large", &["large"]);
    let mut state = 1u64;
    let mut path = vec![NodeId::ROOT];
    while make.profile.tree.len() < nodes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let up = ((state >> 61) as usize).saturating_sub(4);
        path.truncate((path.len() - up.min(path.len() - 1)).min(40));
        let name = make.profile.strings.intern(&format!("namespace::Class<int>::method_{}", (state >> 40) % 50_000));
        let module = make.profile.strings.intern("liblarge.so.1");
        let scope = Scope { module: Some(module), ..Scope::new(ScopeKind::Procedure, name) };
        let node = make.profile.tree.child(path[path.len() - 1], scope);
        make.profile.tree.add(node, &[state % 1000, 1]);
        path.push(node);
    }
    make.done()
}

/// `depth` frames of one procedure, or of all different ones, with a cost in each.
pub(crate) fn deep(depth: usize, different: bool) -> Profile {
    let mut make = Maker::new("deep", &["deep"]);
    let mut node = NodeId::ROOT;
    for level in 0..depth {
        let name = make.profile.strings.intern(&format!("f{}", if different { level } else { 0 }));
        node = make.profile.tree.child(node, Scope::new(ScopeKind::Procedure, name));
        make.profile.tree.add(node, &[1000, 1]);
    }
    make.done()
}
