//! What all shards have counted until a moment, series by series.

use super::rows::Row;

/// What was counted until a moment.
#[derive(Debug, Clone)]
pub struct Snapshot(Vec<u64>);

impl Snapshot {
    /// Of the sums of all cells.
    pub(crate) fn new(sums: Vec<u64>) -> Self {
        Self(sums)
    }

    /// Returns the series of a metric: the values of its labels, and its cells. A metric that is read has none here.
    pub fn series(&self, row: &'static Row) -> impl Iterator<Item = (Vec<&'static str>, &[u64])> {
        (0..row.series()).filter_map(move |series| {
            let places = places_of(row, series);
            let first = row.metric.cell(&places)?;
            let labels = places.iter().zip(row.labels).map(|(place, label)| label.values[*place]);
            Some((labels.collect(), self.0.get(first..first + row.width())?))
        })
    }
}

/// Returns the places of the values of a series's labels.
fn places_of(row: &Row, mut series: usize) -> Vec<usize> {
    let mut places = vec![0; row.labels.len()];
    for (place, label) in places.iter_mut().zip(row.labels).rev() {
        (*place, series) = (series % label.values.len(), series / label.values.len());
    }
    places
}

#[cfg(test)]
mod tests {
    use crate::{Metric, Registry};

    #[test]
    fn each_series_has_its_labels_and_its_count() {
        let registry = Registry::default();
        registry.shared().add(Metric::Transfers, &[1, 0, 1], 7);
        let counted = registry.snapshot();
        let series: Vec<_> = counted.series(Metric::Transfers.row()).collect();
        assert_eq!(series.len(), 12);
        let more: Vec<_> = series.iter().filter(|(_, cells)| cells != &[0]).collect();
        assert_eq!(more, [&(vec!["http", "download", "failed"], &[7][..])]);
        assert_eq!(counted.series(Metric::WorkerTurn.row()).next().map(|(_, cells)| cells.len()), Some(20));
        assert_eq!(counted.series(Metric::Sessions.row()).count(), 0);
        assert_eq!(counted.series(Metric::CertificateExpiry.row()).count(), 0);
    }
}
