//! Nodes tell one another where they take data connections.

use millrace_cluster::DataRoute;

use super::{eventually, node, node_at};
use crate::postgresql::Postgres;

fn route(node: &str, first: u16) -> DataRoute {
    DataRoute::new(node, format!("127.0.0.1:{first}").parse().unwrap(), first..=first + 99).unwrap()
}

#[test]
fn nodes_know_where_the_others_take_data_connections_until_these_leave() {
    let Some(mut server) = Postgres::new() else { return };
    let (routes, hers) = ([route("a", 50_000), route("b", 50_100)], route("c", 50_200));
    let [(_first, a), (_second, b)] =
        routes.clone().map(|route| node_at(&server, &route.node.clone(), Some(route)));
    let (third, c) = node_at(&server, "c", Some(hers.clone()));
    let (_without, without) = node(&server, "d");
    assert_eq!(
        *c.routes.lock().unwrap(),
        [routes[1].clone(), routes[0].clone()],
        "the newest first, at once"
    );
    eventually("the first knows both", || *a.routes.lock().unwrap() == [hers.clone(), routes[1].clone()]);
    assert_eq!(server.run("SELECT count(*) FROM millrace_cluster.data_route"), "3");
    third.leave();
    eventually("one has left", || *a.routes.lock().unwrap() == [routes[1].clone()]);
    server.daemon.kill();
    server.start();
    eventually("after a crash each tells it again", || {
        server.run("SELECT count(*) FROM millrace_cluster.data_route") == "2"
    });
    eventually("and they know one another", || *b.routes.lock().unwrap() == [routes[0].clone()]);
    assert_eq!(*without.routes.lock().unwrap(), [], "a node that takes none asks nothing");
}
