//! Every kernel of the catalogue through naga, without a GPU: it validates for every element type and both ways of
//! passing parameters, its bindings and parameters are what the row says, every backend can translate it, and every row
//! has a slow reference.

use std::collections::HashSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use linn::DType;
use linn::kernel::catalog::CATALOG;
use linn::kernel::sharing::{MAX_BINDINGS, Sharing};
use linn::kernel::source::{self, ENTRY_POINT, ParamPath};
use linn::kernel::{Class, KernelId};
use naga::back::spv;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, GlobalUse, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Module, ShaderStage, StorageAccess, TypeInner};

use crate::{every_shader, reference};

/// Runs `check` over every composed shader and reports all failures by name.
fn for_each_shader(mut check: impl FnMut(KernelId, DType, &Sharing, ParamPath) -> Result<(), String>) {
    let mut failures = Vec::new();
    let mut checked = 0;
    for subject in every_shader::all() {
        checked += 1;
        if let Err(error) = check(subject.id, subject.dtype, &subject.sharing, subject.path) {
            failures.push(format!("{}: {error}", subject.name()));
        }
    }
    assert!(checked > 5000, "only {checked} shaders were checked");
    assert!(failures.is_empty(), "{} of {checked} failed:\n{}", failures.len(), failures.join("\n"));
}

fn parse(id: KernelId, dtype: DType, sharing: &Sharing, path: ParamPath) -> Result<(Module, ModuleInfo), String> {
    let text = source::compose(id, dtype, sharing, path).map_err(|error| error.to_string())?;
    let module = naga::front::wgsl::parse_str(&text).map_err(|error| error.emit_to_string(&text))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::IMMEDIATES | Capabilities::SUBGROUP)
        .validate(&module)
        .map_err(|error| error.emit_to_string(&text))?;
    Ok((module, info))
}

#[test]
fn every_shader_validates_and_binds_what_its_row_says() {
    for_each_shader(|id, dtype, sharing, path| {
        let (module, info) = parse(id, dtype, sharing, path)?;
        let [entry] = module.entry_points.as_slice() else { return Err("not exactly one entry point".into()) };
        if entry.name != ENTRY_POINT || entry.workgroup_size.iter().product::<u32>() > 256 {
            return Err(format!("entry point {} of {:?} invocations", entry.name, entry.workgroup_size));
        }
        if entry.workgroup_size[0] != id.form().constant("WG") {
            return Err("workgroup size is not the constant WG".into());
        }
        let usage = info.get_entry_point(0);
        let mut bound: Vec<(u32, String, bool)> = Vec::new();
        for (handle, global) in module.global_variables.iter() {
            match global.space {
                AddressSpace::Storage { access } => {
                    let Some(binding) = global.binding else { return Err("a storage variable without a binding".into()) };
                    if binding.group != 0 || access != StorageAccess::LOAD | StorageAccess::STORE {
                        return Err(format!("{:?} is not a read_write binding of group 0", global.name));
                    }
                    let written = usage[handle].intersects(GlobalUse::WRITE | GlobalUse::ATOMIC);
                    if usage[handle].is_empty() {
                        return Err(format!("{:?} is not used", global.name));
                    }
                    bound.push((binding.binding, global.name.clone().unwrap_or_default(), written));
                }
                AddressSpace::Immediate | AddressSpace::Uniform => {
                    parameters_agree(&module, id, global.ty)?;
                    let size = id.form().params.map_or(0, |params| params.size);
                    if path == ParamPath::Immediates && size > 128 && global.space == AddressSpace::Immediate {
                        return Err(format!("{size} bytes do not fit immediates"));
                    }
                }
                AddressSpace::Handle => {
                    let Some(binding) = global.binding else { return Err("a texture without a binding".into()) };
                    bound.push((binding.binding, global.name.clone().unwrap_or_default(), false));
                }
                AddressSpace::WorkGroup | AddressSpace::Private => {}
                other => return Err(format!("unexpected address space {other:?}")),
            }
        }
        bound.sort();
        let expected: Vec<usize> = sharing.bound().collect();
        let slots: Vec<u32> = bound.iter().map(|(slot, ..)| *slot).collect();
        if slots != (0..expected.len() as u32).collect::<Vec<_>>() {
            return Err(format!("bindings {bound:?} for operands {expected:?}"));
        }
        // Where nothing is shared, what the row calls an input is never written, and every output is.
        if sharing.bound().count() == id.form().bindings.len() {
            for (binding, (_, name, written)) in id.form().bindings.iter().zip(&bound) {
                if *written == (binding.role == linn::kernel::Role::In) || !name.ends_with(binding.name) {
                    return Err(format!(
                        "{} is {:?}, the shader disagrees ({name}, written: {written})",
                        binding.name, binding.role
                    ));
                }
            }
        }
        Ok(())
    });
}

/// Name, size, and name and offset of every member, as naga lays the WGSL struct out.
fn parameters_agree(module: &Module, id: KernelId, ty: naga::Handle<naga::Type>) -> Result<(), String> {
    let Some(params) = id.form().params else { return Err("parameters, but none in the row".into()) };
    let TypeInner::Struct { members, span } = &module.types[ty].inner else { return Err("parameters are no struct".into()) };
    let found: Vec<(&str, u32)> = members.iter().map(|member| (member.name.as_deref().unwrap_or(""), member.offset)).collect();
    let expected: Vec<(&str, u32)> = params.fields.iter().map(|field| (field.name, field.offset as u32)).collect();
    if found != expected || *span as usize != params.size || params.size % 16 != 0 {
        return Err(format!("{} is {expected:?} of {} bytes here, {found:?} of {span} there", params.name, params.size));
    }
    Ok(())
}

#[test]
fn every_shader_translates_for_every_backend() {
    for_each_shader(|id, dtype, sharing, path| {
        let (module, info) = parse(id, dtype, sharing, path)?;
        let entry = || (ShaderStage::Compute, ENTRY_POINT.to_owned());
        spirv(&module, &info, (1, 3))?;
        let msl = naga::back::msl::PipelineOptions { entry_point: Some(entry()), ..Default::default() };
        naga::back::msl::write_string(&module, &info, &naga::back::msl::Options::default(), &msl)
            .map_err(|error| format!("MSL: {error}"))?;
        let hlsl_options = naga::back::hlsl::Options {
            shader_model: naga::back::hlsl::ShaderModel::V6_0,
            immediates_target: Some(naga::back::hlsl::BindTarget::default()),
            ..Default::default()
        };
        let hlsl = naga::back::hlsl::PipelineOptions { entry_point: Some(entry()) };
        naga::back::hlsl::Writer::new(&mut String::new(), &hlsl_options, &hlsl)
            .write(&module, &info, None)
            .map_err(|error| format!("HLSL: {error}"))?;
        let glsl_options = naga::back::glsl::Options { version: naga::back::glsl::Version::new_gles(310), ..Default::default() };
        let glsl = naga::back::glsl::PipelineOptions {
            shader_stage: ShaderStage::Compute,
            entry_point: ENTRY_POINT.to_owned(),
            multiview: None,
        };
        naga::back::glsl::Writer::new(&mut String::new(), &module, &info, &glsl_options, &glsl, Default::default())
            .and_then(|mut writer| writer.write().map(|_| ()))
            .map_err(|error| format!("GLSL: {error}"))
    });
}

/// As wgpu writes it for Vulkan, which asks for no zeros in workgroup memory where linn does not.
fn spirv(module: &Module, info: &ModuleInfo, version: (u8, u8)) -> Result<Vec<u32>, String> {
    let options = spv::Options {
        lang_version: version,
        flags: spv::WriterFlags::LABEL_VARYINGS | spv::WriterFlags::FORCE_POINT_SIZE,
        bounds_check_policies: BoundsCheckPolicies {
            index: BoundsCheckPolicy::Restrict,
            buffer: BoundsCheckPolicy::Restrict,
            image_load: BoundsCheckPolicy::Restrict,
            binding_array: BoundsCheckPolicy::Unchecked,
        },
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        ..Default::default()
    };
    spv::write_vec(module, info, &options, None).map_err(|error| format!("SPIR-V {version:?}: {error}"))
}

/// The oldest and the newest Vulkan that wgpu writes for; subgroups exist from 1.1 on.
#[test]
#[ignore = "needs spirv-val (Debian and Ubuntu: spirv-tools)"]
fn spirv_val_accepts_every_shader() {
    let texts = every_shader::texts();
    let next = AtomicUsize::new(0);
    let check = || {
        let (mut failures, mut checked) = (Vec::new(), 0);
        while let Some((subject, _)) = texts.get(next.fetch_add(1, Relaxed)) {
            let oldest = match subject.id.form().class {
                Class::Subgroup => ((1, 3), "vulkan1.1"),
                _ => ((1, 0), "vulkan1.0"),
            };
            for (version, environment) in [oldest, ((1, 6), "vulkan1.3")] {
                let accepted = parse(subject.id, subject.dtype, &subject.sharing, subject.path)
                    .and_then(|(module, info)| spirv(&module, &info, version))
                    .and_then(|words| spirv_val(environment, &words));
                failures.extend(accepted.err().map(|words| format!("{} for {environment}: {words}", subject.name())));
                checked += 1;
            }
        }
        (failures, checked)
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let answers: Vec<(Vec<String>, usize)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(check)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let failures: Vec<String> = answers.iter().flat_map(|(failures, _)| failures).cloned().collect();
    let checked: usize = answers.iter().map(|(_, checked)| checked).sum();
    assert!(failures.is_empty(), "{} of {checked} refused:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(checked, 2 * texts.len());
    println!("{checked} modules of {} shaders", texts.len());
}

fn spirv_val(environment: &str, words: &[u32]) -> Result<(), String> {
    let mut child = Command::new("spirv-val")
        .args(["--target-env", environment, "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("spirv-val: {error}\nhelp: install it (Debian and Ubuntu: spirv-tools)"))?;
    let mut input = child.stdin.take().ok_or("no pipe")?;
    input.write_all(bytemuck::cast_slice(words)).map_err(|error| error.to_string())?;
    drop(input);
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(said) }
}

#[test]
fn every_row_has_a_name_of_its_own_a_doc_and_a_reference() {
    let mut seen = HashSet::new();
    for row in CATALOG {
        assert!(seen.insert(row.name), "two rows are called {}", row.name);
        assert!(!row.doc.trim().is_empty(), "{} has no doc", row.name);
        assert!(reference::exists(row.name), "{} has no reference in tests/support/reference.rs", row.name);
        let mut suffixes = HashSet::new();
        for form in row.forms {
            assert!(suffixes.insert(form.suffix), "two forms of {} are called {}", row.name, form.suffix);
            assert!(form.bindings.len() <= MAX_BINDINGS, "{} has too many bindings", row.name);
        }
    }
}

#[test]
fn every_shader_file_is_listed_and_used() {
    // The composer names the file above each piece.
    let mut used = HashSet::new();
    for_each_shader(|id, dtype, sharing, path| {
        let text = source::compose(id, dtype, sharing, path).map_err(|error| error.to_string())?;
        let names = text.lines().filter_map(|line| line.strip_prefix("// ")?.strip_suffix(".wgsl"));
        used.extend(names.map(str::to_owned));
        Ok(())
    });
    let listed: HashSet<String> = source::FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(used, listed, "FILES in src/kernel/source.rs and the catalogue disagree");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders");
    let mut on_disk = HashSet::new();
    for folder in std::fs::read_dir(&root).expect("shaders/ exists").flatten().filter(|entry| entry.path().is_dir()) {
        for file in std::fs::read_dir(folder.path()).expect("a folder of shaders/").flatten() {
            let file = file.path();
            let relative = file.strip_prefix(&root).expect("inside").with_extension("");
            on_disk.insert(relative.to_string_lossy().replace('\\', "/"));
        }
    }
    assert_eq!(on_disk, listed, "shaders/ and FILES disagree");
}
