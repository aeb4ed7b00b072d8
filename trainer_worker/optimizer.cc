#include "trainer_worker/optimizer.h"

#include <cmath>

#include "common/base/status_macros.h"

namespace tandem {
namespace {

absl::StatusOr<double> GlobalNorm(ThreadPool& pool,
                                  const ParameterShard& shard,
                                  Communicator& communicator) {
  double squares = 0;
  const ShardPlan& plan = shard.plan();
  for (size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
    const ShardPlan::Piece& piece = plan.mine(tensor);
    squares += SumOfSquares(pool, shard.gradients() + piece.offset, piece.elements);
  }
  TANDEM_RETURN_IF_ERROR(communicator.AllReduceSum(&squares, 1));
  return std::sqrt(squares);
}

}  // namespace

absl::StatusOr<OptimizerReport> Optimizer::Step(ParameterShard& shard, Communicator& communicator) {
  OptimizerReport report;
  TANDEM_ASSIGN_OR_RETURN(report.learning_rate, LearningRate(options_.schedule, schedule_step_));
  TANDEM_ASSIGN_OR_RETURN(report.grad_norm, GlobalNorm(*pool_, shard, communicator));
  ++schedule_step_;
  if (!std::isfinite(report.grad_norm)) {
    report.skipped = true;
    return report;
  }
  TANDEM_RETURN_IF_ERROR(shard.MapMoments());
  ++updates_;
  const int64_t changed = AdamWUpdate(*pool_,
                                      {.master = shard.master(),
                                       .gradient = shard.gradients(),
                                       .exp_avg = shard.exp_avg(),
                                       .exp_avg_sq = shard.exp_avg_sq(),
                                       .rounded = shard.rounded(),
                                       .count = shard.elements()},
                                      FactorsOf(options_.adamw, report.learning_rate, updates_,
                                                ClipFactor(report.grad_norm, options_.grad_clip)));
  report.changed = shard.rounded() == nullptr ? -1 : changed;
  return report;
}

}  // namespace tandem
