//! Words on standard error.

/// Says a line on standard error. That nobody reads it any more is no reason to end, as `eprintln!` would.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

pub(crate) use say;
