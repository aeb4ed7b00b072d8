// What the texts and plots at the end of a run need of all its steps, in constant memory.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "controller/store/run_store.h"

namespace tandem {

struct PlotPoint {
  double x = 0, y = 0;
};

// A curve of any number of points. Up to kMostBuckets they are kept; beyond, neighbours share a
// bucket, of which the lowest and the highest stay, so that no peak is lost.
class ThinnedCurve {
 public:
  static constexpr size_t kMostBuckets = 1024;

  // Ascending x. A NaN is skipped.
  void Add(PlotPoint point);
  // Ascending x; at most 2 * kMostBuckets.
  std::vector<PlotPoint> Points() const;

 private:
  struct Bucket {
    PlotPoint low, high;
    int64_t points = 0;

    void Add(const Bucket& other);
  };

  std::vector<Bucket> buckets_;
  int64_t points_of_bucket_ = 1;
};

// Totals of a phase over all steps.
struct PhaseTotal {
  std::string phase;
  double seconds = 0;       // sum
  double mean_seconds = 0;  // per step that has the phase
  double share = 0;         // of the seconds of all phases
  int64_t peak_bytes = 0;   // largest
  int64_t steps = 0;        // that have the phase
};

// Sums over the steps with partial rollout.
struct PartialTotals {
  int64_t steps = 0;
  double rounds = 0, ahead = 0, cut = 0, prefilled = 0, generated = 0;
  double partial_ratio = 0, stale_share = 0;
  double span = 0;                              // largest
  double stale = 0, ages = 0;                   // stale tokens, and their ages in versions
  double carried_groups = 0, whole_groups = 0;  // after the newest of the steps

  void Add(const StepRecord& step);
};

// The mean over the steps that have a tail metric; NaN if none has one.
class MeanTail {
 public:
  void Add(const StepRecord& step);
  double Value() const { return sum_ / steps_; }

 private:
  double sum_ = 0, steps_ = 0;
};

// The saving that steps predict for a cap of response length / `parts` per round.
struct PredictedSplit {
  int64_t parts = 0;
  double saved = 0;       // seconds
  double generation = 0;  // seconds of the steps that predict something
  int64_t steps = 0;      // that do

  void Add(const StepRecord& step);
};

// A step whose weights were sent again, or that was undone.
struct NotedStep {
  int64_t step = 0;
  int64_t rollouts = 0;   // that were sent the weights again
  int64_t undone_by = 0;  // generation
  double reward = 0;
};

// Of very many noted steps, this many are named.
inline constexpr size_t kMostNoted = 32;

// Steps must be added in ascending order, and so must evaluations.
class RunFigures {
 public:
  RunFigures() = default;
  // The figures of these steps.
  RunFigures(const std::vector<StepRecord>& records);     // NOLINT(google-explicit-constructor)
  RunFigures(std::initializer_list<StepRecord> records);  // NOLINT(google-explicit-constructor)

  void Add(const StepRecord& step);
  void AddUndone(const StepRecord& step);
  void Add(const EvaluationRecord& evaluation);

  // The curve of one of the metrics that the report plots, over the steps.
  std::vector<PlotPoint> Curve(const std::string& metric) const;
  bool HasPartial() const { return partial.steps > 0; }

  int64_t steps = 0;
  int64_t first_step = 0, last_step = 0;
  double first_reward = std::numeric_limits<double>::quiet_NaN();
  double last_reward = first_reward, best_reward = first_reward;
  int64_t skipped_updates = 0;
  std::vector<PhaseTotal> phases;
  PartialTotals partial;
  MeanTail tail, tail_with_partial, tail_without_partial;
  std::vector<PredictedSplit> splits = {{.parts = 2}, {.parts = 4}};
  int64_t resent_rollouts = 0;
  std::vector<NotedStep> resent;  // the first kMostNoted
  int64_t undone_steps = 0;
  int64_t last_undone = 0;                    // beyond last_step: not made again
  std::vector<NotedStep> undone;              // the first kMostNoted
  std::vector<EvaluationRecord> evaluations;  // the first and the last
  ThinnedCurve held_out;                      // reward of the evaluations

 private:
  std::map<std::string, ThinnedCurve> curves_;
};

}  // namespace tandem
