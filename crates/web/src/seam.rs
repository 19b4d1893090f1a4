//! What JavaScript calls. A question is written into the room that was asked for, and its answer read where it lies; both are
//! numbers of the module's own memory, which JavaScript sees as an array of bytes.

#![expect(unsafe_code, reason = "a name that JavaScript can call is promised to be no other's")]

use std::{cell::RefCell, panic};

use whatwhere_random::Random;

use crate::Page;

#[derive(Default)]
struct Seam {
    page: Page,
    asked: Vec<u8>,
}

thread_local! {
    static SEAM: RefCell<Seam> = RefCell::new(Seam::default());
    /// What ids of parameters are drawn from, which differ and are no secret; seeds of texts come with the question.
    static DRAWS: RefCell<Random> = RefCell::new(Random::new(&[0]));
    /// Apart, so that a panic can say what was wrong while the page is held.
    static ANSWER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Makes room for a question of so many bytes, and says where it is.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn room(length: usize) -> *mut u8 {
    SEAM.with_borrow_mut(|seam| {
        seam.asked = vec![0; length];
        seam.asked.as_mut_ptr()
    })
}

/// Answers the question in the room: 1, or 0 if it is refused and the answer says why. A panic ends the module, which must be
/// begun anew; what it says is the answer, too.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ask() -> u32 {
    panic::set_hook(Box::new(|info| ANSWER.set(info.to_string().into_bytes())));
    SEAM.with_borrow_mut(|Seam { page, asked }| {
        let answer = page.answer(&std::mem::take(asked));
        let is_answered = answer.is_ok();
        ANSWER.set(answer.unwrap_or_else(|error| error.to_string().into_bytes()));
        u32::from(is_answered)
    })
}

/// Where the last answer is.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn answer() -> *const u8 {
    ANSWER.with_borrow(|answer| answer.as_ptr())
}

/// Bytes of the last answer.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn length() -> usize {
    ANSWER.with_borrow(Vec::len)
}

/// What the crate `getrandom` (its configuration `custom`) asks for bytes.
///
/// # Safety
/// So many bytes from `bytes` on can be written.
#[unsafe(no_mangle)]
unsafe extern "Rust" fn __getrandom_v03_custom(
    bytes: *mut u8,
    length: usize,
) -> Result<(), getrandom::Error> {
    DRAWS.with_borrow_mut(|draws| {
        for at in 0..length {
            // SAFETY: within what the caller lends.
            unsafe { bytes.add(at).write(draws.bits() as u8) };
        }
    });
    Ok(())
}
