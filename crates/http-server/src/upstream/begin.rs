//! Begins the answer of an upstream.

use std::net::SocketAddr;
use std::sync::Arc;

use millrace_gateway::answerer::Answerer;
use millrace_gateway::request::GatewayRequest;
use millrace_http::Status;
use millrace_http::target::Target;
use millrace_limits::{Direction, Pace};
use millrace_runtime::transfer::Taken;

use crate::connection::Work;
use crate::connection::exchange::Exchange;
use crate::identity::Who;
use crate::record::Record;
use crate::upstream::relaying::Relay;
use crate::upstream_response::{OutputStage, Readable, Time, UpstreamResponse};

impl Exchange<'_> {
    /// The request as programs and applications hear of it.
    pub(crate) fn gateway_request(
        &self,
        target: &Target<'_>,
        who: &Who,
        local: SocketAddr,
    ) -> GatewayRequest {
        GatewayRequest {
            storage: Arc::clone(&who.account.storage),
            user: who.user.clone(),
            path: target.path.clone(),
            is_directory: target.is_directory,
            query: target.query.unwrap_or_default().to_vec(),
            head: Arc::clone(self.head),
            peer: self.connection.peer.ip(),
            local,
            encrypted: self.connection.is_encrypted(),
        }
    }

    /// Begins an upstream's answer.
    pub(crate) fn begin_answer(&mut self, answerer: Answerer, is_non_parsed: bool, time: Time) {
        let head = self.head;
        let Some(slot) = self.connection.slot.take() else {
            return self.core.discard(answerer);
        };
        self.connection.want_body(self.core);
        let goes_on = head.persistent && self.connection.http.may_keep_alive();
        let mut record = Record::of(head, goes_on, self.core.now.instant);
        record.status = Status::OK;
        let (period, silence) = match time {
            Time::InAll(time) => (time, None),
            Time::OfSilence(time) => (time, Some(time)),
        };
        let extra_headers = self
            .connection
            .extra_headers
            .as_ref()
            .map(|extra_headers| extra_headers.0.clone().into_bytes())
            .unwrap_or_default();
        let running = UpstreamResponse {
            readable: Readable::of(&answerer),
            answerer,
            _slot: slot,
            body: Vec::new(),
            head: Vec::new(),
            stage: if is_non_parsed { OutputStage::RawHead } else { OutputStage::Head },
            held: None,
            record,
            version: head.version,
            goes_on: goes_on && !is_non_parsed,
            request: Arc::clone(head),
            is_encrypted: self.connection.is_encrypted(),
            extra_headers,
            is_watched: [false; 2],
            deadline: self.core.now.instant + period,
            silence,
            download: Pace::new(Direction::Download),
            upload: Pace::new(Direction::Upload),
            taken: Taken::default(),
            leaving: None,
            doubted_at: None,
        };
        self.connection.work = Work::Running(Box::new(running));
        match silence.is_some() {
            // Not at once: part of the body may have come with the head, and is only then put where it is taken from.
            true => self.core.yielded.push_back(self.connection.key),
            false => Relay::new(self.connection, self.core).run_on(),
        }
    }
}
