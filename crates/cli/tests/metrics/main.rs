//! Health and metrics of `millrace serve --admin`: they agree with the logs, answer under a flood, and say when the server
//! takes no more clients.

#[path = "../kit/client.rs"]
mod client;
mod collector;
mod counting;
mod health;
mod notices;
mod otlp;
mod otlp_gzip;
mod otlp_https;
mod otlp_spans;
mod otlp_upgrade;
mod prometheus;
mod site;
mod waits;
