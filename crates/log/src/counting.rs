//! Counts events, in the shard of the worker that tells of them.

use millrace_metrics::{self as metrics, LoginResult, Metric, Protocol, Shard};

use super::access::Request;
use super::event::{Direction, Event, Measured};

/// Counts an event.
pub(super) fn count(shard: &Shard, event: &Event<'_>) {
    let metric = match event {
        Event::Transferred(transfer) => return count_transfer(shard, Protocol::Ftp, &transfer.measured()),
        Event::LoggedIn { .. } => return count_login(shard, LoginResult::Success),
        Event::LoginFailed { .. } => return count_login(shard, LoginResult::Failed),
        Event::LoginRefused { .. } => return count_login(shard, LoginResult::Refused),
        Event::Refused { .. } | Event::ProxyRefused { .. } => Metric::Refused,
        Event::Limited { reached, .. } if !reached.key.is_silence() => Metric::LimitsReached,
        Event::Banned { .. } => Metric::Bans,
        Event::Declined { .. } => Metric::Declined,
        Event::HookRefused { .. } => Metric::HookRefusals,
        Event::Warning { .. } => Metric::Warnings,
        _ => return,
    };
    shard.add(metric, &[], 1);
}

fn count_login(shard: &Shard, result: LoginResult) {
    shard.add(Metric::Logins, &[result as usize], 1);
}

/// Counts a transfer.
pub(super) fn count_transfer(shard: &Shard, protocol: Protocol, transfer: &Measured) {
    let direction = match transfer.direction {
        Direction::Download => metrics::Direction::Download,
        Direction::Upload => metrics::Direction::Upload,
        Direction::Listing => metrics::Direction::Listing,
    };
    let labels = [protocol as usize, direction as usize];
    let result = usize::from(transfer.has_failed);
    shard.add(Metric::Transfers, &[labels[0], labels[1], result], 1);
    shard.add(Metric::TransferBytes, &labels, transfer.bytes);
    shard.observe(Metric::TransferDuration, &labels, transfer.elapsed);
    for (cause, time) in transfer.waited.spent() {
        shard.add_time(Metric::TransferWaitSeconds, &[labels[0], labels[1], cause as usize], time);
    }
    if let Some(time) = transfer.first_byte {
        shard.observe(Metric::TransferFirstByte, &labels, time);
    }
}

/// Counts a request of HTTP.
pub(super) fn count_request(shard: &Shard, request: &Request<'_>) {
    shard.add_request(request.method, request.status);
    shard.add(Metric::ResponseBytes, &[], request.bytes);
    shard.observe(Metric::RequestDuration, &[], request.elapsed);
}
