//! The trees that are measured: made from a seed, so that two runs measure the same.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Numbers that look random and are the same every time.
pub struct Dice(u64);

impl Dice {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Any number.
    #[expect(clippy::should_implement_trait, reason = "it has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below another one.
    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit.max(1)
    }

    /// Small ones are far more frequent.
    fn skewed(&mut self, limit: u64) -> u64 {
        let range = self.below(limit) + 1;
        let range = self.below(range) + 1;
        self.below(range)
    }
}

/// What is in a file.
#[derive(Clone, Copy, Debug)]
pub enum Filling {
    /// Like a program: words that repeat, lines that look alike.
    Source,
    /// What is compressed already.
    Dense,
    /// Like a page of a database: some of each, and some zeros.
    Pages,
}

/// Bytes of a kind.
pub fn bytes(dice: &mut Dice, filling: Filling, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 64);
    while bytes.len() < length {
        match filling {
            Filling::Source => line(dice, &mut bytes),
            Filling::Dense => bytes.extend_from_slice(&dice.next().to_le_bytes()),
            Filling::Pages => {
                let page = bytes.len() + 4096;
                let dense = bytes.len() + 1024 + usize::try_from(dice.below(1536)).unwrap_or(0);
                while bytes.len() < dense {
                    bytes.extend_from_slice(&dice.next().to_le_bytes());
                }
                while bytes.len() < page - 512 {
                    line(dice, &mut bytes);
                }
                bytes.resize(page, 0);
            }
        }
    }
    bytes.truncate(length);
    bytes
}

/// Some lines. As in programs, many are like lines elsewhere: a tree comes to a little more than a
/// quarter when it is compressed, at the speed at which a real one does.
fn line(dice: &mut Dice, bytes: &mut Vec<u8>) {
    const SYLLABLES: [&str; 16] = [
        "re", "tion", "get", "val", "ob", "ject", "con", "fig", "ex", "port", "mod", "ule", "str",
        "ing", "ar", "ray",
    ];
    const BETWEEN: [&str; 8] = ["(", ").", " = ", ", ", "; ", " => ", ": ", " "];
    let (seed, lines) = if dice.below(2) == 0 { (dice.skewed(3_000), 5) } else { (dice.next(), 2) };
    let dice = &mut Dice::new(seed);
    for _ in 0..lines {
        let depth = usize::try_from(dice.below(4)).unwrap_or(0);
        bytes.resize(bytes.len() + depth * 2, b' ');
        for _ in 0..3 + dice.below(6) {
            // A word is a number that is spelled: frequent ones are short.
            let mut word = dice.skewed(60_000) + 1;
            while word > 0 {
                let syllable = usize::try_from(word % 16).unwrap_or(0);
                bytes.extend_from_slice(SYLLABLES[syllable].as_bytes());
                word /= 16;
            }
            let between = usize::try_from(dice.skewed(8)).unwrap_or(0);
            bytes.extend_from_slice(BETWEEN[between].as_bytes());
        }
        bytes.push(b'\n');
    }
}

/// A tree of small files.
pub struct Shape {
    /// What it is called.
    pub name: &'static str,
    /// How many files it has outside of `.git`.
    pub files: u64,
    /// How long they are on average.
    pub mean: u64,
    /// Objects of `.git`, which are dense.
    pub objects: u64,
    /// How long the pack of `.git` is.
    pub pack: usize,
}

/// The trees of small files.
pub const SHAPES: [Shape; 3] = [
    Shape { name: "10 files, 1 MB", files: 10, mean: 100_000, objects: 0, pack: 0 },
    Shape { name: "1,000 files, 50 MB", files: 1_000, mean: 50_000, objects: 0, pack: 0 },
    Shape {
        name: "28,000 files, 490 MB, like a node_modules with its .git",
        files: 26_000,
        mean: 16_000,
        objects: 2_000,
        pack: 66_000_000,
    },
];

/// Makes a tree; returns its files.
pub fn make(at: &Path, shape: &Shape) -> io::Result<Vec<PathBuf>> {
    make_from(7, at, shape)
}

/// Makes a tree from a seed; returns its files. Trees from two seeds have little in common.
pub fn make_from(seed: u64, at: &Path, shape: &Shape) -> io::Result<Vec<PathBuf>> {
    let mut dice = Dice::new(seed);
    let mut made = Vec::new();
    let licence = bytes(&mut dice, Filling::Source, 1100);
    let mut directory = at.to_owned();
    for number in 0..shape.files {
        // About ten files in a directory, some of them below others.
        if number % 10 == 0 {
            let package = format!("package-{}", number / 60);
            directory = at.join("node_modules").join(package);
            if number % 60 != 0 {
                directory = directory.join("lib").join(format!("part-{}", number % 60));
            }
            fs::create_dir_all(&directory)?;
        }
        let path = directory.join(format!("file-{number}.js"));
        let length = usize::try_from(shape.mean / 4 + dice.skewed(shape.mean * 6)).unwrap_or(0);
        if number % 60 == 1 && shape.files > 60 {
            fs::write(&path, &licence)?;
        } else {
            fs::write(&path, bytes(&mut dice, Filling::Source, length))?;
        }
        made.push(path);
    }
    for number in 0..shape.objects {
        let directory = at.join(format!(".git/objects/{:02x}", number % 256));
        fs::create_dir_all(&directory)?;
        let length = usize::try_from(200 + dice.skewed(12_000)).unwrap_or(0);
        fs::write(
            directory.join(format!("{number:038x}")),
            bytes(&mut dice, Filling::Dense, length),
        )?;
    }
    if shape.pack > 0 {
        let directory = at.join(".git/objects/pack");
        fs::create_dir_all(&directory)?;
        let dense = bytes(&mut dice, Filling::Dense, shape.pack);
        fs::write(directory.join("pack-1.pack"), dense)?;
    }
    Ok(made)
}

/// Changes five files, as an agent does: a line is put into each. Returns them.
pub fn change(files: &[PathBuf], turn: u64) -> io::Result<Vec<PathBuf>> {
    let mut dice = Dice::new(1000 + turn);
    let mut changed = Vec::new();
    for _ in 0..5 {
        let path = &files[usize::try_from(dice.below(files.len() as u64)).unwrap_or(0)];
        let mut text = fs::read(path)?;
        let at = usize::try_from(dice.below(text.len() as u64 + 1)).unwrap_or(0);
        let mut added = Vec::new();
        line(&mut dice, &mut added);
        text.splice(at..at, added);
        fs::write(path, text)?;
        changed.push(path.clone());
    }
    Ok(changed)
}

/// How long the large file is.
pub const LARGE: u64 = 1 << 30;

/// Makes a large file: a database, by its first bytes, or something that nobody knows.
pub fn make_large(path: &Path, filling: Filling, begin: &[u8]) -> io::Result<()> {
    let mut dice = Dice::new(11);
    let mut file = io::BufWriter::new(File::create(path)?);
    let mut left = LARGE;
    while left > 0 {
        let mut some = bytes(&mut dice, filling, 1 << 20);
        if left == LARGE {
            some[..begin.len()].copy_from_slice(begin);
        }
        file.write_all(&some)?;
        left -= some.len() as u64;
    }
    file.into_inner()?.sync_all()
}

/// Overwrites one of a hundred pages of a large file.
pub fn change_large(path: &Path, filling: Filling, turn: u64) -> io::Result<()> {
    let mut dice = Dice::new(500 + turn);
    let file = File::options().write(true).open(path)?;
    for _ in 0..LARGE / 4096 / 100 {
        let page = dice.below(LARGE / 4096 - 1) + 1;
        file.write_all_at(&bytes(&mut dice, filling, 4096), page * 4096)?;
    }
    file.sync_all()
}
