#include "controller/report/format.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "controller/report/terminal_text.h"

namespace tandem {
namespace {

// The number of code points, which is the number of terminal columns of the texts printed here.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u;
  }));
}

}  // namespace

std::string FormatBytes(int64_t bytes) {
  constexpr double kKiB = 1024.0;
  const auto value = static_cast<double>(bytes);
  if (bytes == 0) return "0";
  if (std::abs(value) < kKiB * kKiB) return fmt::format("{:.0f} KiB", std::ceil(value / kKiB));
  if (std::abs(value) < kKiB * kKiB * kKiB) return fmt::format("{:.0f} MiB", value / kKiB / kKiB);
  return fmt::format("{:.2f} GiB", value / kKiB / kKiB / kKiB);
}

std::string FormatSeconds(double seconds) {
  if (seconds <= 0) return "0 s";
  if (seconds < 1.0) return fmt::format("{:.0f} ms", seconds * 1000);
  if (seconds < 9.995) return fmt::format("{:.2f} s", seconds);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

std::string FormatShare(double value) { return fmt::format("{:.3g}", value); }

std::string Sparkline(const std::vector<double>& values) {
  static constexpr std::array<const char*, 8> kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string line;
  if (values.empty()) return line;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double range = *high - *low;
  for (double value : values) {
    const double share = range > 0 ? (value - *low) / range : 0.5;
    line += kBars[static_cast<size_t>(std::clamp(share * 7.999, 0.0, 7.0))];
  }
  return line;
}

std::string FormatTable(std::vector<std::vector<std::string>> rows) {
  for (auto& row : rows) {
    for (std::string& cell : row) cell = OneLine(cell, 0);
  }
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - Width(row[i]), ' ');
      text += i == 0 ? row[i] + padding : "  " + padding + row[i];
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

std::string EscapeHtml(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') {
          out += "\xEF\xBF\xBD";
        } else {
          out += c;
        }
    }
  }
  return out;
}

}  // namespace tandem
