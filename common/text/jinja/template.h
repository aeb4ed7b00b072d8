// A parsed template of the Jinja language, rendered as jinja2 renders chat templates: sandboxed,
// trim_blocks and lstrip_blocks on, loop controls, no escaping.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/text/jinja/ast.h"
#include "common/text/jinja/value/value.h"

namespace tandem::jinja {

// Thread-safe after parsing.
class Template {
 public:
  // InvalidArgument with line and reason.
  static absl::StatusOr<Template> Parse(const std::string& source);

  // `now` in `zone` is what strftime_now prints. InvalidArgument with line and reason, such as what
  // the template passed to raise_exception.
  absl::StatusOr<std::string> Render(const Mapping& variables,
                                     absl::Time now,
                                     absl::TimeZone zone) const;

 private:
  explicit Template(Body body) : body_(std::make_shared<const Body>(std::move(body))) {}
  std::shared_ptr<const Body> body_;
};

}  // namespace tandem::jinja
