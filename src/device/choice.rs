//! Which of the adapters that were found. Pure, so that tests need no hardware.

use super::adapter::{AdapterInfo, AdapterKind, DeviceOptions};
use crate::error::{Error, Result};

/// Names of backends, as `LINN_BACKEND` takes them; the first of a row is how [`AdapterInfo::backend`] spells it.
const BACKENDS: [&[&str]; 5] = [&["vulkan", "vk"], &["metal"], &["dx12"], &["gl", "gles", "opengl"], &["webgpu"]];

/// What the user asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// A backend, as [`AdapterInfo::backend`] spells it.
    pub(super) backend: Option<&'static str>,
    /// Part of the adapter's name, driver or backend.
    adapter: Option<String>,
}

impl Wanted {
    /// From the options, else from the environment.
    pub(super) fn new(options: &DeviceOptions, environment: impl Fn(&str) -> Result<Option<String>>) -> Result<Wanted> {
        let wish = |option: &Option<String>, name| match option {
            Some(option) => Ok(Some(option.clone())),
            None => environment(name).map(|value| value.filter(|value| !value.is_empty())),
        };
        let backend = match wish(&options.backend, "LINN_BACKEND")? {
            None => None,
            Some(text) => Some(backend_of(&text).ok_or_else(|| {
                Error::argument(
                    "open",
                    format!("there is no backend {text:?}"),
                    "use vulkan, metal, dx12, gl or webgpu (LINN_BACKEND or DeviceOptions::backend)",
                )
            })?),
        };
        Ok(Wanted { backend, adapter: wish(&options.adapter, "LINN_ADAPTER")? })
    }

    fn fits(&self, info: &AdapterInfo) -> bool {
        let right_backend = self.backend.is_none_or(|backend| backend == info.backend);
        let part = self.adapter.as_deref().unwrap_or_default().to_lowercase();
        right_backend && [&info.name, &info.driver, &info.backend].iter().any(|text| text.to_lowercase().contains(&part))
    }

    /// The place of the best adapter that fits: discrete, integrated, virtual, unknown, software; of equal ones the first.
    pub(super) fn best(&self, found: &[AdapterInfo]) -> Option<usize> {
        let fitting = found.iter().enumerate().filter(|(_, info)| self.fits(info));
        fitting.min_by_key(|(_, info)| info.kind).map(|(place, _)| place)
    }

    /// What the log says where only software was found; nothing where the user named it.
    pub(super) fn warning(&self, chosen: &AdapterInfo) -> Option<String> {
        (chosen.kind == AdapterKind::Software && self.adapter.is_none())
            .then(|| format!("only a software driver was found: {chosen}"))
    }

    /// No adapter fits; `found` has those of every backend, `unable` those that cannot run kernels.
    pub(super) fn error(&self, found: &[AdapterInfo], unable: &[AdapterInfo]) -> Error {
        let backend = self.backend.map(|backend| format!("backend {backend:?}"));
        let adapter = self.adapter.as_ref().map(|adapter| format!("adapter {adapter:?}"));
        let wish: Vec<String> = backend.into_iter().chain(adapter).collect();
        let wish = if wish.is_empty() { String::from("any adapter") } else { wish.join(" and ") };
        let able = found.iter().map(AdapterInfo::to_string);
        let list: Vec<String> = able.chain(unable.iter().map(|info| format!("{info} without compute shaders"))).collect();
        let list = if list.is_empty() { String::from("none was found") } else { format!("found {}", list.join("; ")) };
        let help = if found.is_empty() {
            "install a GPU driver, or a software one (Debian and Ubuntu: apt install mesa-vulkan-drivers; scripts/with-adapter does it)"
        } else {
            "set LINN_ADAPTER to part of a name in this list and LINN_BACKEND to its backend, or unset both for the best adapter"
        };
        Error::NoAdapter { fact: format!("asked for {wish}; {list}"), help: help.into() }
    }
}

fn backend_of(text: &str) -> Option<&'static str> {
    let text = text.to_lowercase();
    BACKENDS.iter().find(|names| names.contains(&text.as_str())).and_then(|names| names.first()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: &str, backend: &str, kind: AdapterKind) -> AdapterInfo {
        AdapterInfo { name: name.into(), backend: backend.into(), driver: format!("{name} driver 1.2"), kind }
    }

    fn wanted(backend: &str, adapter: &str) -> Wanted {
        let environment = |name: &str| Ok(Some(if name == "LINN_BACKEND" { backend } else { adapter }.to_string()));
        Wanted::new(&DeviceOptions::default(), environment).unwrap()
    }

    #[test]
    fn the_best_is_discrete_then_integrated_virtual_unknown_software() {
        use AdapterKind::*;
        let mut found: Vec<AdapterInfo> = [Software, Other, Virtual, Integrated, Discrete]
            .map(|kind| info(&format!("{kind:?}"), "vulkan", kind))
            .into_iter()
            .collect();
        for kind in [Discrete, Integrated, Virtual, Other, Software] {
            let best = wanted("", "").best(&found).unwrap();
            assert_eq!(found.remove(best).kind, kind);
        }
        assert_eq!(wanted("", "").best(&found), None);
        let twins = [info("a", "vulkan", Discrete), info("b", "vulkan", Discrete)];
        assert_eq!(wanted("", "").best(&twins), Some(0), "of equal ones the first");
    }

    #[test]
    fn a_wish_is_a_backend_and_part_of_a_name_in_any_case() {
        let found = [
            info("GeForce", "vulkan", AdapterKind::Discrete),
            info("llvmpipe", "vulkan", AdapterKind::Software),
            info("llvmpipe", "gl", AdapterKind::Software),
        ];
        assert_eq!(wanted("", "LLVM").best(&found), Some(1));
        assert_eq!(wanted("OpenGL", "").best(&found), Some(2));
        assert_eq!(wanted("", "pipe DRIVER").best(&found), Some(1), "the driver's name");
        assert_eq!(wanted("", "Gl").best(&found), Some(2), "the backend's name");
        assert_eq!(wanted("metal", "").best(&found), None);
        assert_eq!(wanted("gl", "geforce").best(&found), None);
        let options = DeviceOptions { adapter: Some("llvmpipe".into()), backend: Some("vk".into()), ..DeviceOptions::default() };
        let environment = |_: &str| Ok(Some(String::from("gl")));
        assert_eq!(Wanted::new(&options, environment).unwrap().best(&found), Some(1), "options win");
        let unknown = Wanted::new(&DeviceOptions::default(), |_| Ok(Some("cuda".into())));
        assert!(unknown.unwrap_err().to_string().contains("\"cuda\""));
    }

    #[test]
    fn software_is_told_of_once_unless_it_was_named() {
        let software = info("llvmpipe", "vulkan", AdapterKind::Software);
        let line = wanted("", "").warning(&software).unwrap();
        assert!(line.starts_with("only a software driver was found: llvmpipe (vulkan") && !line.contains('\n'), "{line}");
        assert!(wanted("vulkan", "").warning(&software).is_some());
        assert_eq!(wanted("", "llvm").warning(&software), None);
        assert_eq!(wanted("", "").warning(&info("GeForce", "vulkan", AdapterKind::Discrete)), None);
    }

    #[test]
    fn the_error_lists_what_other_backends_have() {
        let found = [info("llvmpipe", "vulkan", AdapterKind::Software)];
        let text = wanted("metal", "").error(&found, &[]).to_string();
        assert!(text.contains("asked for backend \"metal\"; found llvmpipe (vulkan, Software"), "{text}");
        assert!(text.contains("\nhelp: set LINN_ADAPTER to part of a name in this list"), "{text}");
        let old = [info("i915", "gl", AdapterKind::Integrated)];
        let text = wanted("", "").error(&[], &old).to_string();
        assert!(text.contains("found i915 (gl, Integrated, i915 driver 1.2) without compute shaders\nhelp: install"), "{text}");
        assert!(wanted("", "").error(&[], &[]).to_string().contains("asked for any adapter; none was found\nhelp: install"));
    }
}
