// The step that docs/explanation/step.md shows: 8 prompts x 8 samples.
#pragma once

#include "controller/report/step_lines.h"

namespace tandem::testing {

inline StepRecord ShownStep() {
  constexpr int64_t kMiB = 1 << 20;
  StepRecord step{.step = 25, .version = 25};
  step.metrics = {{kRewardMean, 0.53125},
                  {kRewardInterval, 0.122},
                  {kLoss, -0.0143},
                  {kEntropy, 0.412},
                  {kPolicyKl, 2.1e-4},
                  {kClipFraction, 0.003},
                  {kGradNorm, 0.87},
                  {kStepSeconds, 3.21},
                  {kGroups, 8},
                  {kGroupsMixed, 5},
                  {kGroupsRight, 2},
                  {kGroupsWrong, 1},
                  {kGroupsEqual, 0},
                  {kTrainedSamples, 64},
                  {kResponseLengthMean, 756.0 / 64},
                  {kResponseLengthP50, 11},
                  {kResponseLengthP99, 29},
                  {kResponseCut, 0},
                  {kGenerationThroughput, 532},
                  {kTrainingThroughput, 1603},
                  {kTailShare, 0.12},
                  {kFirstRatioMin, 1},
                  {kFirstRatioMax, 1}};
  step.phases = {{"verify", 0.027, 0},  {"generate", 1.42, 1024 * kMiB},
                 {"score", 0.008, 0},   {"sleep", 0.031, 0},
                 {"probe", 0.064, 0},   {"train", 1.21, 1884 * kMiB},
                 {"optimize", 0.22, 0}, {"sync", 0.18, 0},
                 {"wake", 0.041, 0},    {"record", 0.009, 0}};
  return step;
}

inline StepSurroundings ShownSurroundings() {
  constexpr int64_t kMiB = 1 << 20;
  const char* const prompt = "What is 7 + 13? Answer with a number.";
  StepSurroundings around{.total_steps = 50,
                          .time_left = "1m20s",
                          .log_probs = {756, 756, 0, 0},
                          .device_bytes = 12186 * kMiB,
                          .planned_bytes = 1905 * kMiB};
  around.details.samples = {{.prompt = prompt,
                             .response = "The answer is 20.",
                             .reward = 1,
                             .response_tokens = 7,
                             .advantage = 0.7246},
                            {.prompt = prompt,
                             .response = "7 + 13 = 21. The answer is 21.",
                             .reward = 0,
                             .response_tokens = 14,
                             .advantage = -1.2076}};
  around.details.weight_bytes = 268 * kMiB;
  around.details.weight_digest = "9f3c41d0aa55bb66";
  around.details.kv_share = 0.38;
  around.details.waiting = 0;
  return around;
}

}  // namespace tandem::testing
