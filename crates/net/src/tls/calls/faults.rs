//! Calls that fail by number; the tests of ACME's files have them, too.

use std::cell::Cell;
use std::io;

/// Which calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The one with this number, from 0.
    Once(usize),
    /// That one, and all after it.
    From(usize),
}

thread_local! {
    static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

/// Counts a call.
pub(super) fn next() -> io::Result<()> {
    let number = CALLS.replace(CALLS.get() + 1);
    match FAULT.get() {
        Some(Fault::Once(fault)) if number == fault => Err(failure()),
        Some(Fault::From(fault)) if number >= fault => Err(failure()),
        _ => Ok(()),
    }
}

/// What a device answers that fails.
fn failure() -> io::Error {
    io::Error::from_raw_os_error(5)
}

/// Runs something on this thread while calls fail. Returns whether one has.
fn during<T>(fault: Fault, run: impl FnOnce() -> T) -> (T, bool) {
    FAULT.set(Some(fault));
    CALLS.set(0);
    let given = run();
    FAULT.set(None);
    let (Fault::Once(number) | Fault::From(number)) = fault;
    (given, CALLS.get() > number)
}

/// Has each call of `run` fail in turn, alone and with all after it, in a state that `prepare` makes anew, and lets `check`
/// look at what came of it. Returns how many calls there are.
pub(crate) fn each<S, T>(
    prepare: impl Fn() -> S,
    run: impl Fn(&S) -> T,
    check: impl Fn(Fault, &S, T),
) -> usize {
    let ends = [Fault::Once, Fault::From].map(|fault: fn(usize) -> Fault| {
        let is_over = |number: &usize| {
            let state = prepare();
            let (given, has_failed) = during(fault(*number), || run(&state));
            if has_failed {
                check(fault(*number), &state, given);
            }
            !has_failed
        };
        (0..).find(is_over).expect("it comes to an end")
    });
    // Fewer where the first failure is the end of it.
    ends[0].max(ends[1])
}
