#include "common/text/jinja/template.h"

#include "common/base/status.h"
#include "common/text/jinja/builtins.h"
#include "common/text/jinja/parser.h"
#include "common/text/jinja/render.h"
#include "common/text/jinja/value/print.h"

namespace tandem::jinja {

absl::StatusOr<Template> Template::Parse(const std::string& source) {
  TANDEM_ASSIGN_OR_RETURN(Body body, ParseTemplate(source));
  return Template(std::move(body));
}

absl::StatusOr<std::string> Template::Render(const Mapping& variables,
                                             absl::Time now,
                                             absl::TimeZone zone) const {
  Runtime runtime;
  runtime.now = now;
  runtime.zone = zone;
  Scope& globals = runtime.NewScope(nullptr);
  AddGlobals(globals);
  for (const auto& [name, value] : variables.items) globals.Set(ToText(name), value);
  Frame frame{runtime, &runtime.NewScope(&globals)};
  std::string out;
  const absl::StatusOr<Flow> flow = RenderBody(*body_, frame, out);
  if (!flow.ok()) return Annotate(flow.status(), fmt::format("line {}", runtime.error_line));
  return out;
}

}  // namespace tandem::jinja
