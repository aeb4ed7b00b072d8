#include "controller/report/step_lines.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "controller/report/format.h"
#include "controller/report/generation_text.h"
#include "controller/report/run_tables.h"
#include "controller/report/terminal_text.h"

namespace tandem {
namespace {

constexpr double kNotablePhase = 0.1;  // the share of a step from which a phase's share is shown
constexpr size_t kDigestDigits = 8;

// The parts of a line, two spaces apart.
class Parts {
 public:
  void Add(std::string part) {
    if (!part.empty()) parts_.push_back(std::move(part));
  }
  // Nothing where the step has no such metric; `format` gets its value.
  template <typename Format>
  void AddMetric(const StepRecord& step, const char* name, const Format& format) {
    const double value = MetricOf(step, name);
    if (!std::isnan(value) || step.metrics.contains(name)) Add(format(value));
  }
  std::string Text(const char* between = "  ") const {
    return fmt::format("{}", fmt::join(parts_, between));
  }

 private:
  std::vector<std::string> parts_;
};

std::string Small(double value) { return value == 0 ? "0" : fmt::format("{:.1e}", value); }

std::string Percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

// "1.84 GiB", "11.9 GiB", "268 MiB": three digits, as the lines have little room.
std::string ShortBytes(int64_t bytes) {
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  const double size = static_cast<double>(bytes) / kGiB;
  if (size < 9.995) return FormatBytes(bytes);
  return fmt::format("{:.{}f} GiB", size, size < 99.95 ? 1 : 0);
}

std::string RewardText(const StepRecord& step) {
  const double mean = MetricOf(step, kRewardMean), interval = MetricOf(step, kRewardInterval);
  if (std::isnan(mean)) return "";
  const std::string text = "reward " + FormatShare(mean);
  return std::isnan(interval) ? text : text + fmt::format(" ±{:.2g}", interval);
}

// The KL to the reference policy, of the loss or of the reward.
void AddReferenceKl(const StepRecord& step, Parts& parts) {
  const auto text = [](double value) { return "ref kl " + Small(value); };
  parts.AddMetric(step, step.metrics.contains(kKlLoss) ? kKlLoss : kRewardKl, text);
}

std::string GroupsText(const StepRecord& step) {
  const double groups = MetricOf(step, kGroups);
  if (std::isnan(groups)) return "";
  Parts kinds;
  for (const auto& [name, kind] :
       {std::pair{kGroupsMixed, "mixed"}, std::pair{kGroupsRight, "all right"},
        std::pair{kGroupsWrong, "all wrong"}, std::pair{kGroupsEqual, "all equal"}}) {
    if (const double count = NumberOf(step, name); count > 0) {
      kinds.Add(fmt::format("{:.0f} {}", count, kind));
    }
  }
  std::string text = fmt::format("groups {:.0f}: {}", groups, kinds.Text(", "));
  const double batches = MetricOf(step, kGenerationBatches);
  if (batches > 1) text += fmt::format(" (filled by {:.0f} batches)", batches);
  return text;
}

std::string LengthText(const StepRecord& step) {
  const double mean = MetricOf(step, kResponseLengthMean);
  if (std::isnan(mean)) return "";
  Parts parts;
  parts.AddMetric(step, kResponseLengthP50, [](double p) { return fmt::format("p50 {:.0f}", p); });
  parts.AddMetric(step, kResponseLengthP99, [](double p) { return fmt::format("p99 {:.0f}", p); });
  parts.AddMetric(step, kResponseCut, [](double share) { return "cut " + Percent(share); });
  const std::string spread = parts.Text(", ");
  return fmt::format("length {:.1f}", mean) + (spread.empty() ? "" : " (" + spread + ")");
}

std::string SamplesText(const StepRecord& step) {
  const double samples = MetricOf(step, kTrainedSamples);
  if (std::isnan(samples)) return "";
  const double tokens = samples * MetricOf(step, kResponseLengthMean);
  const std::string text = fmt::format("{:.0f} samples", samples);
  return std::isnan(tokens) ? text : text + fmt::format(", {:.0f} tokens", tokens);
}

double SecondsOf(const StepRecord& step) {
  double seconds = 0;
  for (const PhaseTime& phase : step.phases) seconds += phase.seconds;
  return seconds;
}

std::string PhasesText(const StepRecord& step) {
  const double all = SecondsOf(step);
  Parts parts;
  for (const PhaseTime& phase : step.phases) {
    const double share = all > 0 ? phase.seconds / all : 0;
    parts.Add(phase.phase + " " + FormatSeconds(phase.seconds) +
              (share >= kNotablePhase ? " " + Percent(share) : ""));
  }
  return parts.Text();
}

std::string PeakText(const StepRecord& step, const StepSurroundings& around) {
  const auto peak = std::max_element(
      step.phases.begin(), step.phases.end(),
      [](const PhaseTime& a, const PhaseTime& b) { return a.peak_bytes < b.peak_bytes; });
  if (peak == step.phases.end() || peak->peak_bytes == 0) return "";
  std::string text = "peak " + ShortBytes(peak->peak_bytes);
  if (around.device_bytes > 0) text += " of " + ShortBytes(around.device_bytes);
  text += " in " + peak->phase;
  if (around.planned_bytes > 0) text += ", planned " + ShortBytes(around.planned_bytes);
  return text;
}

std::string RatesText(const StepRecord& step) {
  Parts parts;
  const double generation = MetricOf(step, kGenerationThroughput);
  if (!std::isnan(generation)) {
    parts.Add(fmt::format("gen {:.0f} tok/s", generation));
  } else if (HasPartial(step)) {
    parts.Add("gen - tok/s");  // no round in this step
  }
  parts.AddMetric(step, kTrainingThroughput,
                  [](double rate) { return fmt::format("train {:.0f} tok/s", rate); });
  return parts.Text();
}

std::string LoadText(const StepRecord& step, const StepDetails& details) {
  Parts parts;
  if (details.kv_share) parts.Add("KV " + Percent(*details.kv_share));
  if (details.waiting) parts.Add(fmt::format("waiting {}", *details.waiting));
  parts.AddMetric(step, kTailShare, [](double share) { return "tail " + Percent(share); });
  return parts.Text();
}

std::string RatioText(const StepRecord& step) {
  const double least = MetricOf(step, kFirstRatioMin), most = MetricOf(step, kFirstRatioMax);
  if (std::isnan(least) || std::isnan(most)) return "";
  if (least == 1 && most == 1) return ", ratio 1 exactly";
  return fmt::format(", ratio {:.6g} to {:.6g}", least, most);
}

// Reports which log-probs were compared: those of older weights may differ from the trainer's.
std::string LogProbsText(const StepRecord& step, const LogProbSummary& comparison) {
  const double older = MetricOf(step, kStaleTokens);
  const bool mixed = older > 0;  // NaN without partial rollout
  if (comparison.compared == 0) {
    return mixed ? "no log-probs compared: no token is of the step's weights" : "";
  }
  std::string text = fmt::format(
      "{} of {} token log-probs {}identical, |Δ| max {:.3g}", comparison.identical,
      comparison.compared, mixed ? "of the step's weights " : "", comparison.max_abs_difference);
  text += RatioText(step);
  if (mixed) text += fmt::format(" ({:.0f} tokens of older weights are not compared)", older);
  return text;
}

std::string WeightsText(const StepRecord& step, const StepDetails& details) {
  if (details.weight_digest.empty()) return "";
  std::string text = "weights " + ShortBytes(details.weight_bytes);
  for (const PhaseTime& phase : step.phases) {
    if (phase.phase == "sync") text += " in " + FormatSeconds(phase.seconds);
  }
  return text + ", digest " + details.weight_digest.substr(0, kDigestDigits);
}

std::string Indented(std::initializer_list<std::string> sections) {
  Parts parts;
  for (const std::string& section : sections) parts.Add(section);
  const std::string text = parts.Text("   ");
  return text.empty() ? "" : "  " + text;
}

std::string SampleText(const SampleRecord& sample, const std::string& text, size_t width) {
  return sample.texts_kept ? "\"" + OneLine(text, width) + "\"" : "-";
}

}  // namespace

std::string StepLine(const StepRecord& step, const StepSurroundings& around) {
  Parts parts;
  parts.Add(fmt::format("step {}/{}", step.step, around.total_steps));
  parts.Add(fmt::format("v{}", step.version));
  parts.Add(RewardText(step));
  parts.AddMetric(step, kLoss, [](double loss) { return "loss " + FormatShare(loss); });
  parts.AddMetric(step, kEntropy, [](double value) { return "entropy " + FormatShare(value); });
  parts.AddMetric(step, kPolicyKl, [](double value) { return "kl " + Small(value); });
  AddReferenceKl(step, parts);
  parts.AddMetric(step, kClipFraction,
                  [](double share) { return fmt::format("clip {:.1f} %", 100 * share); });
  parts.AddMetric(step, kGradNorm, [](double norm) { return "grad " + FormatShare(norm); });
  parts.AddMetric(step, kStepSeconds, FormatSeconds);
  parts.Add("ETA " + around.time_left);
  return parts.Text();
}

std::vector<std::string> FurtherStepLines(const StepRecord& step, const StepSurroundings& around) {
  const StepDetails& details = around.details;
  std::vector<std::string> lines = {
      Indented({GroupsText(step), LengthText(step), SamplesText(step)}),
      Indented({PhasesText(step)}),
      Indented({PeakText(step, around), RatesText(step), LoadText(step, details)}),
      Indented({PartialStepText(step)}),
      Indented({LogProbsText(step, around.log_probs), WeightsText(step, details)})};
  std::erase(lines, "");
  return lines;
}

std::vector<std::string> SampleLines(const StepDetails& details, size_t width) {
  struct Numbers {
    std::string reward, advantage, tokens;
  };
  std::vector<Numbers> numbers;
  size_t reward = 0, advantage = 0, tokens = 0;  // the widest
  for (const SampleRecord& sample : details.samples) {
    numbers.push_back({.reward = FormatShare(sample.reward),
                       .advantage = fmt::format("{:+.3g}", sample.advantage),
                       .tokens = std::to_string(sample.response_tokens)});
    reward = std::max(reward, numbers.back().reward.size());
    advantage = std::max(advantage, numbers.back().advantage.size());
    tokens = std::max(tokens, numbers.back().tokens.size());
  }
  std::vector<std::string> lines;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const SampleRecord& sample = details.samples[i];
    const char* sign = numbers.size() == 1 ? "=" : i == 0 ? "+" : "-";
    lines.push_back(fmt::format("  {} reward {:<{}}  A {:<{}}  {:>{}} tok  {} -> {}", sign,
                                numbers[i].reward, reward, numbers[i].advantage, advantage,
                                numbers[i].tokens, tokens, SampleText(sample, sample.prompt, width),
                                SampleText(sample, sample.response, width)));
  }
  return lines;
}

std::string StepPhaseTable(const StepRecord& step, const std::map<std::string, double>& run) {
  const auto percent = [](double seconds, double all) {
    return fmt::format("{:.1f} %", all > 0 ? 100 * seconds / all : 0);
  };
  const double all = SecondsOf(step);
  double run_all = 0;
  for (const auto& [phase, seconds] : run) run_all += seconds;
  std::vector<std::vector<std::string>> rows = {
      {"  phase", "seconds", "share", "so far", "share", "peak memory", "run", "share"}};
  double so_far = 0;
  int64_t peak = 0;
  std::map<std::string, double> others = run;  // of phases that only other steps had, such as save
  for (const PhaseTime& phase : step.phases) {
    so_far += phase.seconds;
    peak = std::max(peak, phase.peak_bytes);
    const auto known = others.extract(phase.phase);
    const double in_run = known ? known.mapped() : phase.seconds;
    rows.push_back({"  " + phase.phase, FormatSeconds(phase.seconds), percent(phase.seconds, all),
                    FormatSeconds(so_far), percent(so_far, all), FormatBytes(phase.peak_bytes),
                    FormatSeconds(in_run), percent(in_run, run_all)});
  }
  for (const auto& [phase, seconds] : others) {
    rows.push_back(
        {"  " + phase, "-", "-", "-", "-", "-", FormatSeconds(seconds), percent(seconds, run_all)});
  }
  rows.push_back({"  all", FormatSeconds(all), percent(all, all), FormatSeconds(all),
                  percent(all, all), FormatBytes(peak), FormatSeconds(run_all),
                  percent(run_all, run_all)});
  return FormatTable(rows);
}

}  // namespace tandem
