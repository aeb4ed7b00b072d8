#include "trainer_worker/shard/optimizer.h"

#include <cmath>

#include "common/base/status_macros.h"
#include "common/comm/agreement.h"

namespace tandem {
namespace {

absl::StatusOr<double> GlobalNorm(const ParameterShard& shard, Communicator& communicator) {
  const ShardPlan& plan = shard.plan();
  std::vector<FloatRange> pieces;
  for (size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
    const ShardPlan::Piece& piece = plan.mine(tensor);
    pieces.push_back({shard.gradients() + piece.offset, piece.elements});
  }
  const absl::StatusOr<std::vector<double>> sums = shard.ops()->SumsOfSquares(pieces);
  TANDEM_RETURN_IF_ERROR(Agree(communicator, sums.status(), "squaring the gradients").status());
  double squares = 0;
  for (const double sum : *sums) squares += sum;
  TANDEM_RETURN_IF_ERROR(communicator.AllReduceSum(&squares, 1));
  return std::sqrt(squares);
}

}  // namespace

absl::StatusOr<OptimizerReport> Optimizer::Step(ParameterShard& shard, Communicator& communicator) {
  OptimizerReport report;
  TANDEM_ASSIGN_OR_RETURN(report.learning_rate, LearningRate(options_.schedule, schedule_step_));
  TANDEM_ASSIGN_OR_RETURN(report.grad_norm, GlobalNorm(shard, communicator));
  if (!std::isfinite(report.grad_norm)) {
    report.skipped = true;
    ++schedule_step_;
    return report;
  }
  const absl::StatusOr<std::unique_ptr<ParameterShard::Pass>> pass = shard.BeginUpdate();
  // A rank without memory must not leave the others a version ahead.
  TANDEM_RETURN_IF_ERROR(
      Agree(communicator, pass.status(), "taking memory for the optimizer step").status());
  const AdamWFactors factors = FactorsOf(options_.adamw, report.learning_rate, updates_ + 1,
                                         ClipFactor(report.grad_norm, options_.grad_clip));
  const auto step = [&](const ParameterShard::Stretch& stretch) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const int64_t changed,
                            shard.ops()->Step({.master = stretch.master,
                                               .gradient = stretch.gradient,
                                               .exp_avg = stretch.exp_avg,
                                               .exp_avg_sq = stretch.exp_avg_sq,
                                               .rounded = stretch.rounded,
                                               .count = stretch.count},
                                              factors));
    report.changed = stretch.rounded == nullptr ? -1 : report.changed + changed;
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR((*pass)->Run(step));
  ++updates_;
  ++schedule_step_;
  return report;
}

}  // namespace tandem
