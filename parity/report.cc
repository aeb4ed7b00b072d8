#include "parity/report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/weights/digest.h"
#include "parity/parity.h"

namespace tandem {

void RowTrace::OnRow(const OpLabel& label, const RowKey& key, const void* data, int64_t bytes) {
  if (!rows_.Has(key)) return;
  labels_.emplace(label.index, label);
  const uint64_t digest = DigestOf(data, bytes).low;
  const auto [entry, added] = digests_.emplace(std::pair{label.index, key.position}, digest);
  if (!added && entry->second != digest && !contradiction_) {
    contradiction_ = Place{label, key.position};
  }
}

std::optional<RowTrace::Place> RowTrace::FirstDifference(const RowTrace& other) const {
  for (const auto& [place, digest] : digests_) {
    const auto found = other.digests_.find(place);
    if (found == other.digests_.end() || found->second == digest) continue;
    return Place{labels_.at(place.first), place.second};
  }
  return std::nullopt;
}

void RowCapture::OnRow(const OpLabel& label, const RowKey& key, const void* data, int64_t bytes) {
  if (!bytes_.empty() || label.index != place_.label.index || key.position != place_.position ||
      !rows_.Has(key)) {
    return;
  }
  bytes_.assign(static_cast<const char*>(data), static_cast<size_t>(bytes));
}

namespace {

using Json = nlohmann::json;

std::string LayerText(int layer) {
  return layer < 0 ? "outside the layers" : fmt::format("in layer {}", layer);
}

std::string DivergenceText(const FirstDifference& found) {
  std::string text = fmt::format(
      "first difference: {} {}, sample {}, row of position {} ({}), element {} of {}\n"
      "  {:<16} {}\n"
      "  {:<16} {}\n",
      found.op, LayerText(found.layer), found.sample_id, found.position,
      found.position < found.prompt_tokens ? "prompt" : "response", found.element, found.elements,
      found.first, found.first_value, found.second, found.second_value);
  if (!found.note.empty()) text += "  note: " + found.note + "\n";
  return text;
}

Json DivergenceJson(const FirstDifference& found) {
  return {{"op", found.op},
          {"layer", found.layer},
          {"sample_id", found.sample_id},
          {"position", found.position},
          {"prompt_tokens", found.prompt_tokens},
          {"element", found.element},
          {"elements", found.elements},
          {"first", {{"side", found.first}, {"value", found.first_value}}},
          {"second", {{"side", found.second}, {"value", found.second_value}}},
          {"note", found.note}};
}

}  // namespace

std::string ParityText(const ParityReport& report) {
  std::string text = fmt::format("{} on {}, {} prompts, {} samples\n", report.numerics_class,
                                 report.kernel_set, report.prompts, report.samples);
  for (const SideComparison& pair : report.comparisons) {
    text += fmt::format("{} = {}: {} of {} log-probs identical, max |Δ| {:.3g}, mean |Δ| {:.3g}\n",
                        pair.first, pair.second, pair.identical, pair.compared,
                        pair.max_abs_difference, pair.mean_abs_difference);
  }
  text += "forward ops that ran:\n";
  for (const SideRun& side : report.sides) {
    text += fmt::format("  {} ({:.1f} s): {}\n", side.name, side.seconds, side.counts.Text());
  }
  for (const std::string& missing : report.missing_ops) text += "MISSING " + missing + "\n";
  if (report.divergence) text += DivergenceText(*report.divergence);
  return text + (report.ok() ? "parity holds\n" : "PARITY DOES NOT HOLD\n");
}

std::string ParityJson(const ParityReport& report) {
  Json root = {{"ok", report.ok()},
               {"numerics_class", report.numerics_class},
               {"kernel_set", report.kernel_set},
               {"prompts", report.prompts},
               {"samples", report.samples},
               {"missing_ops", report.missing_ops},
               {"comparisons", Json::array()},
               {"ops", Json::object()}};
  for (const SideComparison& pair : report.comparisons) {
    root["comparisons"].push_back({{"first", pair.first},
                                   {"second", pair.second},
                                   {"compared", pair.compared},
                                   {"identical", pair.identical},
                                   {"max_abs_difference", pair.max_abs_difference},
                                   {"mean_abs_difference", pair.mean_abs_difference}});
  }
  for (const SideRun& side : report.sides) {
    Json& ops = root["ops"][side.name];
    for (int i = 0; i < kForwardOps; ++i) {
      const auto op = static_cast<ForwardOp>(i);
      ops[ForwardOpName(op)] = {{"calls", side.counts.at(op).calls},
                                {"rows", side.counts.at(op).rows}};
    }
  }
  if (report.divergence) root["divergence"] = DivergenceJson(*report.divergence);
  return root.dump() + "\n";
}

}  // namespace tandem
