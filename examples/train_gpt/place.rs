//! Where files go: names that overwrite nothing of another run, and that can be written at all.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::settings::Args;

/// Where the checkpoint of a run goes.
pub struct Place {
    path: PathBuf,
    /// The file was made by this run, empty, so that no other run takes its name.
    reserved: bool,
}

impl Place {
    /// Where the flags say, else the resumed file, else a free name in the current folder.
    pub fn of(args: &Args) -> Result<Place> {
        let Some(path) = args.save.as_ref().or(args.resume.as_ref()) else { return Place::reserve(Path::new("")) };
        can_be_made(path, "checkpoint", "--save")?;
        Ok(Place { path: path.clone(), reserved: false })
    }

    /// `linn-gpt.safetensors` in `folder`, or the first of `linn-gpt-2.safetensors` and so on that does not exist. Making a file
    /// and finding that it did not exist is one step, so runs that start together get different names.
    pub fn reserve(folder: &Path) -> Result<Place> {
        for n in 1.. {
            let name = if n == 1 { String::from("linn-gpt.safetensors") } else { format!("linn-gpt-{n}.safetensors") };
            let path = folder.join(name);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(_) => return Ok(Place { path, reserved: true }),
                Err(why) if why.kind() == ErrorKind::AlreadyExists => {}
                Err(why) => return Err(why).with_context(|| cannot(folder_of(&path), "checkpoint", "--save")),
            }
        }
        unreachable!("a folder does not hold so many files")
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Nothing was saved: the name is free again.
        if self.reserved && std::fs::metadata(&self.path).is_ok_and(|file| file.len() == 0) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Nobody should train for hours and find out then that nothing can be written.
pub fn can_be_made(path: &Path, what: &str, flag: &str) -> Result<()> {
    let folder = folder_of(path);
    if !folder.is_dir() {
        bail!("{} is no folder, so no {what} can be saved there\nhelp: make it, or pass another {flag}", folder.display());
    }
    if path.is_dir() {
        bail!("{} is a folder, so no {what} can be saved under that name\nhelp: pass a file's name with {flag}", path.display());
    }
    if path.as_os_str().to_string_lossy().ends_with(std::path::is_separator) {
        bail!("{} names a folder, not a file\nhelp: pass a file's name with {flag}", path.display());
    }
    if path.exists() && !path.is_file() {
        bail!("{} exists and is no regular file\nhelp: pass another name with {flag}", path.display());
    }
    // The name is as long as the one that the file has while it is written.
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.partial", std::process::id()));
    let trial = folder.join(name);
    std::fs::write(&trial, b"").and_then(|()| std::fs::remove_file(&trial)).with_context(|| cannot(folder, what, flag))
}

/// What a run writes must not be what it reads, nor another file that it writes; only a resumed checkpoint may be replaced.
pub fn are_apart(args: &Args, save: Option<&Path>) -> Result<()> {
    let files = [
        ("--text", args.text.as_deref()),
        ("--resume", args.resume.as_deref()),
        ("--save", save.or(args.save.as_deref())),
        ("--json", args.json.as_deref()),
    ];
    for (at, (flag, path)) in files.iter().enumerate() {
        for (other, before) in files.iter().take(at) {
            let replaces = *flag == "--save" && *other == "--resume" || *flag == "--resume";
            if let (Some(path), Some(before)) = (path, before)
                && !replaces
                && is_same(path, before)
            {
                bail!(
                    "{flag} {} is the file of {other}, which would be lost\nhelp: pass another name with {flag}",
                    path.display()
                );
            }
        }
    }
    Ok(())
}

/// True when both names lead to one file, whether it exists or not.
fn is_same(a: &Path, b: &Path) -> bool {
    let whole =
        |path: &Path| path.canonicalize().ok().or_else(|| Some(folder_of(path).canonicalize().ok()?.join(path.file_name()?)));
    whole(a).is_some_and(|a| Some(a) == whole(b))
}

fn cannot(folder: &Path, what: &str, flag: &str) -> String {
    format!("no {what} can be written to {}\nhelp: check its permissions, or pass another {flag}", folder.display())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
