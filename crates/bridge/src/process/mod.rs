//! Children.

use std::path::PathBuf;
use std::rc::Rc;

/// Starts commands whose whole tree can always be killed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Processes {
    _program: Rc<PathBuf>,
}

impl Processes {
    /// The program is the bridge's own, which is run again as the keeper of each command.
    pub fn new(program: PathBuf) -> Self {
        Self { _program: Rc::new(program) }
    }
}
