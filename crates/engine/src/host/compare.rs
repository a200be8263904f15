//! How two snapshots differ.

/// How much is wanted of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// How many files differ.
    Counts,
    /// Which, and how.
    Files {
        /// Only what lies at or beneath this path.
        beneath: Option<String>,
    },
}

/// How the workspace of one snapshot became that of another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// How many files were added.
    pub added: u64,
    /// How many have other bytes, another mode, or lead elsewhere.
    pub modified: u64,
    /// How many were removed.
    pub removed: u64,
    /// The first of them by path, if they were wanted.
    pub files: Vec<ChangedFile>,
    /// How many more there are.
    pub left_out: u64,
}

/// A file that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedFile {
    /// Where, in the workspace. What is no text in it is replaced.
    pub path: String,
    /// What became of it.
    pub how: HowChanged,
    /// How large it was.
    pub size_before: Option<u64>,
    /// How large it is.
    pub size_after: Option<u64>,
    /// What differs in it.
    pub text: TextDiff,
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HowChanged {
    /// It is new.
    Added,
    /// It is another.
    Modified,
    /// It is gone.
    Removed,
}

/// What differs in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextDiff {
    /// These lines, as `patch` reads them; none, if only its mode differs.
    Lines(String),
    /// It is no text.
    Binary,
    /// It is larger than is shown, or too much was shown already.
    TooLarge,
}
