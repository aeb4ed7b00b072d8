#include "trainer_worker/shard/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/base/status.h"
#include "common/comm/communicator.h"

namespace tandem {

AdamWFactors FactorsOf(const AdamWOptions& options, double lr, int64_t step, float gradient_scale) {
  const double correction1 = 1 - std::pow(options.beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(options.beta2, static_cast<double>(step));
  AdamWFactors factors;
  factors.gradient_scale = gradient_scale;
  factors.weight1 = static_cast<float>(1 - options.beta1);
  factors.beta2 = static_cast<float>(options.beta2);
  factors.weight2 = static_cast<float>(1 - options.beta2);
  factors.decay = static_cast<float>(1 - lr * options.weight_decay);
  factors.step_size = static_cast<float>(lr / correction1);
  factors.sqrt_bias_correction2 = static_cast<float>(std::sqrt(correction2));
  factors.eps = static_cast<float>(options.eps);
  return factors;
}

float ClipFactor(double norm, double max_norm) {
  return std::min(1.0f, static_cast<float>(max_norm) / (static_cast<float>(norm) + 1e-6f));
}

namespace {

absl::Status CheckRatio(const char* name, double ratio) {
  if (ratio >= 0 && ratio <= 1) return absl::OkStatus();
  return InvalidArgument("{} is {}, but must be from 0 to 1, a fraction of the rate", name, ratio);
}

double ConstantFactor(const LrScheduleOptions& options, double step) {
  const double warmup = static_cast<double>(options.warmup_steps);
  return step < warmup ? step / std::max(1.0, warmup) : 1.0;
}

double CosineFactor(const LrScheduleOptions& options, double step) {
  const double warmup = static_cast<double>(options.warmup_steps);
  const double total = static_cast<double>(options.total_steps);
  if (!options.zero_indexed_step) step += 1;
  if (step < warmup) {
    return options.init_lr_ratio + (1 - options.init_lr_ratio) * step / std::max(1.0, warmup);
  }
  const double progress = (step - warmup) / std::max(1.0, total - warmup);
  const double height = (1 - options.min_lr_ratio) / 2;
  const double middle = (1 + options.min_lr_ratio) / 2;
  const double wave = std::cos(std::numbers::pi * options.num_cycles * 2 * progress);
  return std::max(options.min_lr_ratio, wave * height + middle);
}

double WsdFactor(const LrScheduleOptions& options, int64_t step) {
  const int64_t warmup = options.warmup_steps;
  if (step < warmup) {
    return static_cast<double>(step) / static_cast<double>(std::max<int64_t>(1, warmup));
  }
  const int64_t remaining = std::max<int64_t>(0, options.total_steps - warmup);
  const auto stable = static_cast<int64_t>(static_cast<double>(remaining) * options.stable_ratio);
  if (step < warmup + stable) return 1.0;
  if (step >= options.total_steps) return options.min_lr_ratio;
  const auto decay = static_cast<double>(std::max<int64_t>(1, remaining - stable));
  const double progress = static_cast<double>(step - warmup - stable) / decay;
  const double wave = std::cos(std::numbers::pi * options.num_cycles * 2 * progress);
  const double height = std::max(0.0, 0.5 * (1 + wave));
  return (1 - options.min_lr_ratio) * height + options.min_lr_ratio;
}

}  // namespace

int64_t WarmupSteps(int64_t steps, double ratio, int64_t total_steps) {
  if (steps > 0) return steps;
  return static_cast<int64_t>(ratio * static_cast<double>(std::max<int64_t>(0, total_steps)));
}

absl::StatusOr<double> LearningRate(const LrScheduleOptions& options, int64_t step) {
  if (options.type == "constant") {
    return options.lr * ConstantFactor(options, static_cast<double>(step));
  }
  if (options.type == "cosine") {
    TANDEM_RETURN_IF_ERROR(CheckRatio("actor.optim.min_lr_ratio", options.min_lr_ratio));
    TANDEM_RETURN_IF_ERROR(CheckRatio("the initial ratio of the warm-up", options.init_lr_ratio));
    return options.lr * CosineFactor(options, static_cast<double>(step));
  }
  if (options.type == "wsd") return options.lr * WsdFactor(options, step);
  return InvalidArgument("actor.optim.lr_scheduler_type is \"{}\"; use constant, cosine or wsd",
                         options.type);
}

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
  // All ranks must agree: a rank without memory would otherwise stay a version behind the others.
  TANDEM_RETURN_IF_ERROR(
      Agree(communicator, pass.status(), "taking memory for the optimizer step").status());
  const AdamWFactors factors = FactorsOf(options_.adamw, report.learning_rate, updates_ + 1,
                                         ClipFactor(report.grad_norm, options_.grad_clip));
  const auto step = [&](const ParameterShard::OptimizerChunk& chunk) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const int64_t changed,
                            shard.ops()->Step({.master = chunk.master,
                                               .gradient = chunk.gradient,
                                               .exp_avg = chunk.exp_avg,
                                               .exp_avg_sq = chunk.exp_avg_sq,
                                               .rounded = chunk.rounded,
                                               .count = chunk.count},
                                              factors));
    report.changed = chunk.rounded == nullptr ? -1 : report.changed + changed;
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR((*pass)->Run(step));
  ++updates_;
  ++schedule_step_;
  return report;
}

}  // namespace tandem
