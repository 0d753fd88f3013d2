//! Where files go: names that overwrite nothing of another run, and that can be written at all.

use std::cell::OnceCell;
use std::fmt::{Display, Formatter};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::settings::Args;

/// Where the checkpoint of a run goes.
pub struct Place {
    path: OnceCell<PathBuf>,
    /// Where names are tried while there is no path.
    folder: PathBuf,
    /// A name that is not free, though no file has it yet.
    taken: Option<PathBuf>,
}

impl Place {
    /// Where the flags say, else the resumed file, else a free name in the current folder.
    pub fn of(args: &Args) -> Result<Place> {
        let Some(path) = args.save.as_ref().or(args.resume.as_ref()) else {
            return Ok(Place { taken: args.json.clone(), ..Place::free(Path::new(""))? });
        };
        can_be_made(path, "checkpoint", "--save")?;
        if path.exists() && !args.resume.as_ref().is_some_and(|resumed| is_same(path, resumed)) {
            log::warn!("{} exists; the first save replaces it", path.display());
        }
        Ok(Place { path: OnceCell::from(path.clone()), folder: PathBuf::new(), taken: None })
    }

    /// `linn-gpt.safetensors` in `folder`, or the first of `linn-gpt-2.safetensors` and so on that does not exist when
    /// something is saved. A run that is killed before leaves nothing behind.
    pub fn free(folder: &Path) -> Result<Place> {
        can_stand_beside(&folder.join(name(1)), "checkpoint", "--save")?;
        Ok(Place { path: OnceCell::new(), folder: folder.to_path_buf(), taken: None })
    }

    /// The file, once it is known.
    pub fn path(&self) -> Option<&Path> {
        self.path.get().map(PathBuf::as_path)
    }

    /// Has `write` replace the file as a whole.
    pub fn save(&self, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        if let Some(path) = self.path() {
            return write(path);
        }
        let path = self.take()?;
        write(&path).inspect_err(|_| drop(std::fs::remove_file(&path)))?;
        let _ = self.path.set(path);
        Ok(())
    }

    /// Takes a free name. Making a file and finding that it did not exist is one step, so runs that save together get
    /// different names.
    fn take(&self) -> Result<PathBuf> {
        for n in 1.. {
            let path = self.folder.join(name(n));
            if self.taken.as_ref().is_some_and(|taken| is_same(taken, &path)) {
                continue;
            }
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(_) => return Ok(path),
                Err(why) if why.kind() == ErrorKind::AlreadyExists => {}
                Err(why) => return Err(cannot(why, &path, "checkpoint", "--save")),
            }
        }
        unreachable!("a folder does not hold so many files")
    }
}

/// The file as messages name it.
impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self.path() {
            Some(path) => path.display().fmt(f),
            None => f.write_str("a free name"),
        }
    }
}

fn name(n: usize) -> String {
    if n == 1 { String::from("linn-gpt.safetensors") } else { format!("linn-gpt-{n}.safetensors") }
}

/// Nobody should train for hours and find out then that a file cannot be written. Nothing that exists is touched.
pub fn check(args: &Args) -> Result<()> {
    are_apart(args)?;
    if let Some(path) = &args.json {
        can_be_written(path, "summary", "--json")?;
    }
    match (&args.save, &args.resume) {
        (Some(path), _) => can_be_made(path, "checkpoint", "--save"),
        (None, None) => Place::free(Path::new("")).map(drop),
        // It may be for sampling only.
        (None, Some(_)) => Ok(()),
    }
}

/// For a file that is replaced as a whole.
fn can_be_made(path: &Path, what: &str, flag: &str) -> Result<()> {
    can_be_a_file(path, what, flag)?;
    if path.is_symlink() && !path.exists() {
        bail!("{} is a link to a file that does not exist\nhelp: pass that file's own name with {flag}", path.display());
    }
    if path.exists() && !path.is_file() {
        bail!("{} exists and is no regular file\nhelp: pass another name with {flag}", path.display());
    }
    can_stand_beside(path, what, flag)
}

/// For a file that is written in place; that can be a device, for instance standard output.
fn can_be_written(path: &Path, what: &str, flag: &str) -> Result<()> {
    can_be_a_file(path, what, flag)?;
    #[cfg(unix)]
    if std::fs::metadata(path).is_ok_and(|file| std::os::unix::fs::FileTypeExt::is_fifo(&file.file_type())) {
        // Whoever reads a pipe would take the trial for its end.
        return Ok(());
    }
    let new = path.symlink_metadata().is_err();
    let trial = OpenOptions::new().append(true).create(true).open(path).and_then(|mut file| file.write(b""));
    let trial = trial.and_then(|_| if new { std::fs::remove_file(path) } else { Ok(()) });
    trial.with_context(|| format!("no {what} can be written to {}\nhelp: pass another {flag}", path.display()))
}

fn can_be_a_file(path: &Path, what: &str, flag: &str) -> Result<()> {
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
    Ok(())
}

/// Makes a file for trial, whose name is as long as the one that `path` has while it is written.
fn can_stand_beside(path: &Path, what: &str, flag: &str) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.partial", std::process::id()));
    let trial = path.with_file_name(name);
    let made = std::fs::write(&trial, b"").and_then(|()| std::fs::remove_file(&trial));
    made.map_err(|why| cannot(why, path, what, flag))
}

/// What a run writes must not be what it reads, nor another file that it writes; only a resumed checkpoint may be replaced.
fn are_apart(args: &Args) -> Result<()> {
    let files = [
        ("--text", args.text.as_deref()),
        ("--resume", args.resume.as_deref()),
        ("--save", args.save.as_deref()),
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

fn cannot(why: std::io::Error, path: &Path, what: &str, flag: &str) -> anyhow::Error {
    let help = match why.kind() {
        ErrorKind::InvalidFilename => {
            format!("pass another name with {flag}, with room for 20 characters more while it is written")
        }
        _ => format!("check the permissions of {}, or pass another {flag}", folder_of(path).display()),
    };
    anyhow::Error::from(why).context(format!("no {what} can be written to {}\nhelp: {help}", path.display()))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
