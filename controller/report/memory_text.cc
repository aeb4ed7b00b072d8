#include "controller/report/memory_text.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "controller/report/format.h"

namespace tandem {
namespace {

constexpr size_t kBarWidth = 40;

char Letter(const MemoryLine& line) {
  static const std::map<std::string, char> letters = {
      {"master", 'm'},    {"weights", 'w'},  {"reference", 'r'}, {"optimizer", 'o'},
      {"gradients", 'g'}, {"gather", 't'},   {"bucket", 'b'},    {"activations", 'a'},
      {"workspace", 's'}, {"kv_cache", 'k'}, {"driver", 'd'}};
  const auto found = letters.find(line.tag);
  const char letter = found == letters.end() ? '?' : found->second;
  return line.trainer ? letter : static_cast<char>(std::toupper(letter));
}

// The number of bytes of a full bar: the device, or the peak if that would be only a few letters.
int64_t FullBar(int64_t device_bytes, int64_t peak_bytes) {
  return peak_bytes < device_bytes / 4 ? peak_bytes : std::max(device_bytes, peak_bytes);
}

std::string PercentOf(int64_t bytes, int64_t of) {
  return of > 0 ? fmt::format("{:.1f} %", 100.0 * static_cast<double>(bytes) / of) : "-";
}

// Memory that does not count against the device, because it is in files or, beside a GPU, on the
// host: by place and tag.
std::string Elsewhere(const MemoryPlan& plan) {
  std::map<std::pair<std::string, std::string>, int64_t> most;
  for (const PlannedPhase& phase : plan.phases) {
    for (const MemoryLine& line : phase.lines) {
      if (plan.Bytes(line) > 0 || line.bytes == 0) continue;
      const char* place = line.location == Location::kFile ? "file" : "host memory";
      int64_t& bytes = most[{place, line.tag}];
      bytes = std::max(bytes, line.bytes);
    }
  }
  std::string text;
  for (const auto& [key, bytes] : most) {
    text += fmt::format("{}{} of {} in {}", text.empty() ? "" : ", ", FormatBytes(bytes),
                        key.second, key.first);
  }
  return text.empty() ? "" : "outside the device: " + text + "\n";
}

std::string Decisions(const MemoryPlan& plan) {
  std::string text =
      plan.apart ? "trainer and rollout have a device each, and the rollout never sleeps"
      : plan.sleep_level == 0
          ? "while the trainer works the rollout keeps its memory"
          : fmt::format("while the trainer works the rollout sleeps at level {}", plan.sleep_level);
  text += plan.recompute ? "; layers run forward again in backward"
                         : "; all activations are kept for backward";
  text += plan.tight ? "; the trainer gives back before the sync what only training needs"
                     : "; the trainer keeps its memory between steps";
  return text + "\n";
}

const LedgerEntry* Entry(const LedgerSnapshot& ledger, const MemoryLine& line) {
  for (const LedgerEntry& entry : ledger.entries) {
    if (entry.tag == line.tag && entry.location == line.location) return &entry;
  }
  return nullptr;
}

// The lines of the phase with the peak.
std::string PeakTable(const MemoryPlan& plan) {
  if (plan.phases.empty()) return "";
  const PlannedPhase& phase = plan.phases[plan.peak];
  std::vector<std::vector<std::string>> rows = {{phase.phase, "worker", "place", "bytes"}};
  for (const MemoryLine& line : phase.lines) {
    if (line.bytes == 0) continue;
    rows.push_back({line.part.empty() ? line.tag : line.tag + ": " + line.part,
                    line.trainer ? "trainer" : "rollout", LocationName(line.location),
                    FormatBytes(line.bytes)});
  }
  return FormatTable(rows);
}

// The parts of the peak that the plan only estimates.
std::string Estimates(const MemoryPlan& plan) {
  std::map<std::string, int64_t> parts;
  if (!plan.phases.empty()) {
    for (const MemoryLine& line : plan.phases[plan.peak].lines) {
      if (line.tag == kDriverTag) parts[line.part] += line.bytes;
    }
  }
  std::string text;
  for (const auto& [part, bytes] : parts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", FormatBytes(bytes), part);
  }
  if (text.empty()) return "";
  return "driver: " + text + ": estimates, counted in no ledger\n";
}

// The planned and measured bytes of one phase by tag.
std::string TagTable(const PlannedPhase* planned,
                     const PhaseTime& phase,
                     const ShownWorkers& workers) {
  const PairMemory pair = PairOf(phase, workers);
  std::map<std::tuple<bool, std::string, Location>, int64_t> plan;
  if (planned != nullptr) {
    for (const MemoryLine& line : planned->lines) {
      plan[{!line.trainer, line.tag, line.location}] += line.bytes;
    }
  }
  for (const MemoryLine& line : MeasuredLines(phase, workers)) {
    plan.emplace(std::tuple(!line.trainer, line.tag, line.location), 0);
  }
  std::vector<std::vector<std::string>> rows = {{"tag", "worker", "place", "planned", "measured"}};
  for (const auto& [key, bytes] : plan) {
    const auto& [rollout, tag, location] = key;
    const LedgerEntry* entry =
        Entry(rollout ? pair.rollout : pair.trainer, {!rollout, tag, location, 0});
    const int64_t measured = entry == nullptr ? 0 : entry->peak_bytes;
    if (bytes == 0 && measured == 0) continue;
    rows.push_back({tag, rollout ? "rollout" : "trainer", LocationName(location),
                    planned == nullptr ? "-" : FormatBytes(bytes),
                    tag == kDriverTag ? "in no ledger" : FormatBytes(measured)});
  }
  return FormatTable(rows);
}

// As for LedgerSnapshot::peak_on_device.
bool CountsOnDevice(const LedgerSnapshot& ledger, Location location) {
  const bool host_is_device = ledger.driver_total_bytes == 0;
  return location == Location::kDevice || (location == Location::kHost && host_is_device);
}

}  // namespace

std::string ShownWorkers::Text() const {
  return apart ? fmt::format("trainer {} and rollout {}", trainer, rollout)
               : fmt::format("pair {}", trainer);
}

std::vector<MemoryLine> MeasuredLines(const PhaseTime& phase, const ShownWorkers& workers) {
  std::vector<MemoryLine> lines;
  for (const WorkerMemory& worker : phase.workers) {
    if (worker.rank != (worker.trainer ? workers.trainer : workers.rollout)) continue;
    for (const LedgerEntry& entry : worker.ledger.entries) {
      const int64_t bytes = CountsOnDevice(worker.ledger, entry.location) ? entry.peak_bytes : 0;
      lines.push_back({worker.trainer, entry.tag, entry.location, bytes});
    }
  }
  return lines;
}

PairMemory PairOf(const PhaseTime& phase, const ShownWorkers& workers) {
  PairMemory pair{.apart = workers.apart};
  for (const WorkerMemory& worker : phase.workers) {
    if (worker.rank != (worker.trainer ? workers.trainer : workers.rollout)) continue;
    (worker.trainer ? pair.trainer : pair.rollout) = worker.ledger;
  }
  return pair;
}

namespace {

std::string DriverLine(const LedgerSnapshot& asked, int64_t counted, const char* whose) {
  if (asked.driver_free_bytes == 0) return "";
  const int64_t used = asked.driver_total_bytes - asked.driver_free_bytes;
  return fmt::format(
      "at its end the driver{} says {} of {} in use; {} of it is in neither ledger: contexts, "
      "libraries' workspaces, other processes\n",
      whose, FormatBytes(used), FormatBytes(asked.driver_total_bytes), FormatBytes(used - counted));
}

}  // namespace

std::string DriverLines(const PairMemory& pair) {
  if (pair.apart) {
    return DriverLine(pair.trainer, pair.trainer.device_bytes, " of the trainer's device") +
           DriverLine(pair.rollout, pair.rollout.device_bytes, " of the rollout's device");
  }
  // Both workers share the device; only the one that worked in the phase has fresh driver figures.
  const LedgerSnapshot& asked = pair.trainer.driver_free_bytes > 0 ? pair.trainer : pair.rollout;
  return DriverLine(asked, pair.trainer.device_bytes + pair.rollout.device_bytes, "");
}

const char* DeviceHeading(bool apart) { return apart ? "fuller" : "pair"; }

ShownWorkers HeaviestWorkers(const std::vector<PhaseTime>& phases, bool apart) {
  ShownWorkers heaviest{.apart = apart};
  int64_t most_of_pair = -1, most_of_trainer = -1, most_of_rollout = -1;
  for (const PhaseTime& phase : phases) {
    for (const WorkerMemory& worker : phase.workers) {
      const int rank = worker.rank;
      const int64_t bytes = apart ? worker.ledger.peak_on_device()
                                  : PairOf(phase, {.trainer = rank, .rollout = rank}).peak_bytes();
      int64_t& most = !apart ? most_of_pair : worker.trainer ? most_of_trainer : most_of_rollout;
      if (bytes <= most) continue;
      most = bytes;
      if (!apart || worker.trainer) heaviest.trainer = rank;
      if (!apart || !worker.trainer) heaviest.rollout = rank;
    }
  }
  return heaviest;
}

std::string MemoryBar(const std::vector<MemoryLine>& lines, int64_t full, size_t width) {
  std::string bar;
  double end = 0;
  for (const MemoryLine& line : lines) {
    if (line.location == Location::kFile) continue;
    end += static_cast<double>(line.bytes) / static_cast<double>(std::max<int64_t>(1, full));
    const auto upto = std::min(width, static_cast<size_t>(end * static_cast<double>(width) + 0.5));
    if (upto > bar.size()) bar.append(upto - bar.size(), Letter(line));
  }
  return "|" + bar + std::string(width - bar.size(), ' ') + "|";
}

std::string DeviceBars(const std::vector<MemoryLine>& lines,
                       int64_t full,
                       size_t width,
                       bool apart) {
  if (!apart) return MemoryBar(lines, full, width);
  std::string bars;
  for (const bool trainer : {true, false}) {
    std::vector<MemoryLine> own;
    std::copy_if(lines.begin(), lines.end(), std::back_inserter(own),
                 [trainer](const MemoryLine& line) { return line.trainer == trainer; });
    bars += MemoryBar(own, full, width / 2);
  }
  return bars;
}

std::string TagLetters(const std::vector<MemoryLine>& lines) {
  std::vector<std::pair<char, std::string>> seen;
  for (const MemoryLine& line : lines) {
    if (line.location == Location::kFile || line.bytes == 0) continue;
    const std::pair<char, std::string> entry{Letter(line), line.tag};
    if (std::find(seen.begin(), seen.end(), entry) == seen.end()) seen.push_back(entry);
  }
  std::string text;
  for (const bool trainer : {true, false}) {
    text += trainer ? "trainer:" : "; rollout:";
    for (const auto& [letter, tag] : seen) {
      if ((std::islower(letter) != 0) == trainer) text += fmt::format(" {} {}", letter, tag);
    }
  }
  return text + "\n";
}

std::string MemoryPlanText(const MemoryPlan& plan) {
  std::string text = fmt::format("memory plan of {}, device of {}{}\n",
                                 plan.apart ? "a trainer and a rollout" : "a pair",
                                 FormatBytes(plan.device_bytes), plan.apart ? " each" : "");
  const int64_t full = FullBar(plan.device_bytes, plan.peak_bytes());
  std::vector<std::vector<std::string>> rows = {
      {"phase", "trainer", "rollout", DeviceHeading(plan.apart), "of device", ""}};
  std::vector<MemoryLine> all;
  for (const PlannedPhase& phase : plan.phases) {
    std::vector<MemoryLine> lines = phase.lines;
    for (MemoryLine& line : lines) line.bytes = plan.Bytes(line);
    all.insert(all.end(), lines.begin(), lines.end());
    rows.push_back({phase.phase, FormatBytes(plan.Bytes(phase, true)),
                    FormatBytes(plan.Bytes(phase, false)), FormatBytes(plan.DeviceBytes(phase)),
                    PercentOf(plan.DeviceBytes(phase), plan.device_bytes),
                    DeviceBars(lines, full, kBarWidth, plan.apart)});
  }
  text += FormatTable(rows) + TagLetters(all) + PeakTable(plan) + Decisions(plan) +
          Elsewhere(plan) + Estimates(plan);
  return text + MemoryPlanSummary(plan) + "\n";
}

namespace {

// Whose device has the peak, where both have one.
const char* FullerDevice(const MemoryPlan& plan) {
  if (!plan.apart || plan.phases.empty()) return "";
  const PlannedPhase& peak = plan.phases[plan.peak];
  return plan.Bytes(peak, true) >= plan.Bytes(peak, false) ? ", on the trainer's device"
                                                           : ", on the rollout's device";
}

}  // namespace

std::string MemoryPlanSummary(const MemoryPlan& plan) {
  const int64_t left = plan.device_bytes - plan.peak_bytes();
  const std::string text = fmt::format(
      "peak {} of {} in {}{}: ", FormatBytes(plan.peak_bytes()), FormatBytes(plan.device_bytes),
      plan.phases.empty() ? "-" : plan.phases[plan.peak].phase, FullerDevice(plan));
  if (plan.fits()) return text + fmt::format("fits, {} left", FormatBytes(left));
  const std::string excess = left < 0 ? fmt::format(", {} too much", FormatBytes(-left)) : "";
  const std::string problem = plan.problem.empty() ? "" : ": " + plan.problem;
  return text + "does not fit" + excess + problem;
}

std::string AdviceText(const PlanAdvices& advices) {
  if (advices.alone.empty()) return AdviceEnd(advices);
  std::vector<std::vector<std::string>> rows = {{"change", "of the peak", ""}};
  for (const PlanAdvice& advice : advices.alone) {
    rows.push_back({advice.setting, SavedText(advice), AdviceRemark(advice)});
  }
  return FormatTable(rows) + AdviceEnd(advices);
}

std::string AdviceEnd(const PlanAdvices& advices) {
  if (advices.alone.empty()) {
    return "nothing that this configuration can change lowers the peak or makes room for a KV "
           "pool\n";
  }
  if (std::any_of(advices.alone.begin(), advices.alone.end(),
                  [](const PlanAdvice& advice) { return advice.enough; })) {
    return "";
  }
  if (advices.together.empty()) {
    return fmt::format("all together still need {}{}\n", FormatBytes(advices.least_bytes),
                       advices.pool ? "" : " and have no room for a KV pool");
  }
  std::string text =
      fmt::format("together these fit, with a peak of {}:\n", FormatBytes(advices.least_bytes));
  for (const PlanAdvice& advice : advices.together) {
    text += fmt::format("  {}  ({}{})\n", advice.setting, advice.pool ? "room for a KV pool, " : "",
                        SavedText(advice));
  }
  return text;
}

std::string SavedText(const PlanAdvice& advice) {
  return advice.saved_bytes < 0 ? "takes " + FormatBytes(-advice.saved_bytes)
                                : "saves " + FormatBytes(advice.saved_bytes);
}

std::string AdviceRemark(const PlanAdvice& advice) {
  if (advice.enough) return "fits then";
  return advice.pool ? "room for a KV pool then" : "";
}

std::string NoteOnStep(int64_t step) {
  if (step != 1) return "";
  return "step 1 makes the optimizer's state at its end: what comes before it holds less than "
         "planned. Loading, the first sync and its check came before it and are in no step.";
}

std::string StepMemoryText(const StepMemory& memory) {
  const MemoryPlan& plan = memory.plan;
  const ShownWorkers shown = HeaviestWorkers(memory.phases, plan.apart);
  std::string text = fmt::format("{}, {}, device of {}{}\n", memory.state, shown.Text(),
                                 FormatBytes(plan.device_bytes), plan.apart ? " each" : "");
  const PhaseTime* peak = nullptr;
  for (const PhaseTime& phase : memory.phases) {
    const int64_t bytes = PairOf(phase, shown).peak_bytes();
    if (peak == nullptr || bytes > PairOf(*peak, shown).peak_bytes()) peak = &phase;
  }
  const int64_t full =
      FullBar(plan.device_bytes, peak == nullptr ? 0 : PairOf(*peak, shown).peak_bytes());
  std::vector<std::vector<std::string>> rows = {{"phase", "seconds", "trainer", "rollout",
                                                 DeviceHeading(plan.apart), "of device", "planned",
                                                 "system", "unaccounted", ""}};
  std::vector<MemoryLine> all;
  for (const PhaseTime& phase : memory.phases) {
    const PairMemory pair = PairOf(phase, shown);
    const PlannedPhase* planned = plan.Find(phase.phase);
    const std::vector<MemoryLine> lines = MeasuredLines(phase, shown);
    all.insert(all.end(), lines.begin(), lines.end());
    const int64_t system = pair.trainer.process_bytes + pair.rollout.process_bytes;
    rows.push_back(
        {phase.phase, FormatSeconds(phase.seconds), FormatBytes(pair.trainer.peak_on_device()),
         FormatBytes(pair.rollout.peak_on_device()), FormatBytes(pair.peak_bytes()),
         PercentOf(pair.peak_bytes(), plan.device_bytes),
         planned == nullptr ? "-" : FormatBytes(plan.LedgerDeviceBytes(*planned)),
         FormatBytes(system),
         FormatBytes(pair.trainer.unaccounted_bytes() + pair.rollout.unaccounted_bytes()),
         DeviceBars(lines, full, kBarWidth / 2, plan.apart)});
  }
  text += FormatTable(rows) + TagLetters(all);
  if (!memory.note.empty()) text += memory.note + "\n";
  if (peak == nullptr) return text;
  const PairMemory pair = PairOf(*peak, shown);
  text += fmt::format(
      "\nhighest in {}: {} by the ledgers\n"
      "at its end the system says {} (trainer) and {} (rollout); {} and {} of them were there "
      "before anything was counted, {} and {} is not accounted for\n",
      peak->phase, FormatBytes(pair.peak_bytes()), FormatBytes(pair.trainer.process_bytes),
      FormatBytes(pair.rollout.process_bytes), FormatBytes(pair.trainer.baseline_bytes),
      FormatBytes(pair.rollout.baseline_bytes), FormatBytes(pair.trainer.unaccounted_bytes()),
      FormatBytes(pair.rollout.unaccounted_bytes()));
  text += DriverLines(pair);
  return text + TagTable(plan.Find(peak->phase), *peak, shown);
}

}  // namespace tandem
