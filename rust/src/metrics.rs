//! Counters, gauges and histograms with labels, and their text form (version 0.0.4).

use crate::border::{array, guard, TwBuffer, TwSlice};
use prometheus::core::Collector;
use prometheus::{CounterVec, Encoder, GaugeVec, HistogramOpts, HistogramVec, Opts, Registry, TextEncoder};
use std::sync::RwLock;

enum Family {
    Counter(CounterVec),
    Gauge(GaugeVec),
    Histogram(HistogramVec),
}

pub enum Series {
    Counter(prometheus::Counter),
    Gauge(prometheus::Gauge),
    Histogram(prometheus::Histogram),
}

#[derive(Default)]
pub struct TwMetrics {
    registry: Registry,
    families: RwLock<Vec<Family>>,
    // Boxes, so that a handle stays where it is; series live as long as the registry.
    #[allow(clippy::vec_box)]
    series: RwLock<Vec<Box<Series>>>,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
pub enum TwMetricKind {
    Counter = 0,
    Gauge = 1,
    Histogram = 2,
}

fn register<C: Collector + Clone + 'static>(
    registry: &Registry,
    collector: prometheus::Result<C>,
) -> Result<C, String> {
    let collector = collector.map_err(|e| e.to_string())?;
    registry.register(Box::new(collector.clone())).map_err(|e| e.to_string())?;
    Ok(collector)
}

unsafe fn texts<'a>(slices: *const TwSlice, size: usize) -> Result<Vec<&'a str>, String> {
    array(slices, size).iter().map(|slice| slice.text("a label")).collect()
}

impl TwMetrics {
    fn add_family(&self, kind: i32, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> Result<i32, String> {
        let family = match kind {
            k if k == TwMetricKind::Counter as i32 => {
                Family::Counter(register(&self.registry, CounterVec::new(Opts::new(name, help), labels))?)
            }
            k if k == TwMetricKind::Gauge as i32 => {
                Family::Gauge(register(&self.registry, GaugeVec::new(Opts::new(name, help), labels))?)
            }
            k if k == TwMetricKind::Histogram as i32 => {
                let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
                Family::Histogram(register(&self.registry, HistogramVec::new(options, labels))?)
            }
            other => return Err(format!("metric kind {other} does not exist")),
        };
        let mut families = self.families.write().map_err(|e| e.to_string())?;
        families.push(family);
        Ok(families.len() as i32 - 1)
    }

    fn series(&self, family: i32, values: &[&str]) -> Result<*const Series, String> {
        let families = self.families.read().map_err(|e| e.to_string())?;
        let family = families.get(family as usize).ok_or_else(|| format!("metric family {family} does not exist"))?;
        let series = match family {
            Family::Counter(family) => family.get_metric_with_label_values(values).map(Series::Counter),
            Family::Gauge(family) => family.get_metric_with_label_values(values).map(Series::Gauge),
            Family::Histogram(family) => family.get_metric_with_label_values(values).map(Series::Histogram),
        }
        .map_err(|e| e.to_string())?;
        let mut all = self.series.write().map_err(|e| e.to_string())?;
        all.push(Box::new(series));
        let last: &Series = all.last().expect("just pushed");
        Ok(last)
    }

    fn render(&self) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut out).map_err(|e| e.to_string())?;
        Ok(out)
    }
}

#[no_mangle]
pub extern "C" fn tw_metrics_new() -> *mut TwMetrics {
    Box::into_raw(Box::<TwMetrics>::default())
}

#[no_mangle]
pub unsafe extern "C" fn tw_metrics_free(metrics: *mut TwMetrics) {
    if !metrics.is_null() {
        guard(std::ptr::null_mut(), || {
            drop(Box::from_raw(metrics));
            Ok(())
        });
    }
}

#[no_mangle]
pub unsafe extern "C" fn tw_metrics_add_family(
    metrics: *const TwMetrics,
    kind: i32,
    name: TwSlice,
    help: TwSlice,
    labels: *const TwSlice,
    num_labels: usize,
    buckets: *const f64,
    num_buckets: usize,
    error: *mut TwBuffer,
) -> i32 {
    guard(error, || {
        let labels = texts(labels, num_labels)?;
        (*metrics).add_family(kind, name.text("name")?, help.text("help")?, &labels, array(buckets, num_buckets))
    })
    .unwrap_or(-1)
}

#[no_mangle]
pub unsafe extern "C" fn tw_metrics_series(
    metrics: *const TwMetrics,
    family: i32,
    label_values: *const TwSlice,
    num_label_values: usize,
    error: *mut TwBuffer,
) -> *const Series {
    guard(error, || (*metrics).series(family, &texts(label_values, num_label_values)?)).unwrap_or(std::ptr::null())
}

/// Adds to a counter (never less than nothing) or a gauge, or observes in a histogram.
#[no_mangle]
pub unsafe extern "C" fn tw_series_record(series: *const Series, value: f64) {
    guard(std::ptr::null_mut(), || {
        match &*series {
            Series::Counter(counter) if value >= 0.0 => counter.inc_by(value),
            Series::Counter(_) => {}
            Series::Gauge(gauge) => gauge.add(value),
            Series::Histogram(histogram) => histogram.observe(value),
        }
        Ok(())
    });
}

/// Sets a gauge. A counter whose total is kept elsewhere is brought up to `value`; it never goes down.
#[no_mangle]
pub unsafe extern "C" fn tw_series_set(series: *const Series, value: f64) {
    guard(std::ptr::null_mut(), || {
        match &*series {
            Series::Gauge(gauge) => gauge.set(value),
            Series::Counter(counter) => {
                let missing = value - counter.get();
                if missing > 0.0 {
                    counter.inc_by(missing);
                }
            }
            Series::Histogram(_) => {}
        }
        Ok(())
    });
}

#[no_mangle]
pub unsafe extern "C" fn tw_metrics_render(
    metrics: *const TwMetrics,
    text: *mut TwBuffer,
    error: *mut TwBuffer,
) -> bool {
    match guard(error, || (*metrics).render()) {
        Some(bytes) => {
            text.write(TwBuffer::give(bytes));
            true
        }
        None => false,
    }
}
