//! The instruction sets that kernels are written for, and which of them this machine has.

use std::sync::OnceLock;

/// An instruction-set path of the kernels, from slowest to fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust, on every machine.
    Portable,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ, VL and VNNI.
    Avx512Vnni,
}

impl Isa {
    /// Every path, from slowest to fastest.
    pub const ALL: [Isa; 3] = [Isa::Portable, Isa::Avx2, Isa::Avx512Vnni];

    /// The path to use: the fastest one available, or a slower one that `BANTAM_ISA` names. Decided once per process.
    pub fn detect() -> Isa {
        static CHOICE: OnceLock<Isa> = OnceLock::new();
        *CHOICE.get_or_init(|| {
            let limit = std::env::var("BANTAM_ISA").ok().and_then(|name| Isa::from_name(&name));
            Isa::fastest_up_to(limit.unwrap_or(Isa::Avx512Vnni))
        })
    }

    /// The fastest path of this machine that is no faster than `limit`.
    pub fn fastest_up_to(limit: Isa) -> Isa {
        Isa::ALL.into_iter().filter(|isa| *isa <= limit && isa.is_available()).max().unwrap_or(Isa::Portable)
    }

    /// Whether this machine can run the path.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Portable => true,
            Isa::Avx2 => has_avx2(),
            Isa::Avx512Vnni => has_avx512_vnni(),
        }
    }

    /// The name that `BANTAM_ISA` takes.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512Vnni => "avx512",
        }
    }

    /// The path with this [`Isa::name`].
    pub fn from_name(name: &str) -> Option<Isa> {
        Isa::ALL.into_iter().find(|isa| isa.name() == name)
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512_vnni() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512_vnni() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::Isa;

    #[test]
    fn names_round_trip_and_unknown_names_are_refused() {
        for isa in Isa::ALL {
            assert_eq!(Isa::from_name(isa.name()), Some(isa));
        }
        assert_eq!(Isa::from_name("sse9"), None);
    }

    #[test]
    fn a_limit_is_never_exceeded_and_the_choice_can_run() {
        for limit in Isa::ALL {
            let isa = Isa::fastest_up_to(limit);
            assert!(isa <= limit && isa.is_available());
        }
    }
}
