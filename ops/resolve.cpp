// From a rule and the inputs' layouts to the row that runs.
#include <cleave/core/error.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribution.h>
#include <cleave/ops/rule.h>

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

namespace cleave {
namespace {

using dist::AxisList;
using dist::AxisMask;
using dist::LayoutData;

// What one mesh axis does: nothing (R), splits a letter, or carries a partial linear set.
struct Choice {
  Letter letter = 0;
  int linear = -1;
};

bool contains(const std::vector<Letter>& letters, Letter l) {
  return std::find(letters.begin(), letters.end(), l) != letters.end();
}

class Resolver {
 public:
  Resolver(const Rule& rule, const RuleCall& call, const dist::MeshState& mesh, bool can_decompose)
      : rule_(rule), call_(call), mesh_(mesh), can_decompose_(can_decompose) {
    for (size_t i = 0; i < rule.in.size(); ++i)
      for (size_t d = 0; d < rule.in[i].size(); ++d)
        if (rule.in[i][d].size() == 1) sizes_[rule.in[i][d][0]] = call.in[i].shape[static_cast<int64_t>(d)];
  }

  /// Choices that some input already makes on this axis, and R; or every possible one.
  std::vector<Choice> choices(int axis, bool all) const {
    std::vector<Choice> out{{}};
    std::vector<Letter> seen;
    for (size_t i = 0; i < rule_.in.size(); ++i) {
      if (!call_.present[i]) continue;
      int at = call_.in[i].layout ? call_.in[i].layout->dim_of(axis) : -1;
      for (size_t d = 0; d < rule_.in[i].size(); ++d) {
        if (!all && static_cast<int>(d) != at) continue;
        for (Letter l : rule_.in[i][d])
          if (!contains(seen, l) && splittable(l)) {
            seen.push_back(l);
            out.push_back({l, -1});
          }
      }
    }
    for (size_t s = 0; s < rule_.linear.size(); ++s)
      if (all || has_partial(rule_.linear[s], axis)) out.push_back({0, static_cast<int>(s)});
    return out;
  }

  /// Calls f(row) for every legal combination of the axes' choices and orders of axes within a letter.
  template <class F>
  void enumerate(bool all, F&& f) {
    int n = static_cast<int>(mesh_.axes().size());
    std::vector<std::vector<Choice>> options;
    for (int a = 0; a < n; ++a) options.push_back(choices(a, all));
    std::vector<size_t> pick(static_cast<size_t>(n), 0);
    while (true) {
      picked_.clear();
      for (int a = 0; a < n; ++a) picked_.push_back(options[static_cast<size_t>(a)][pick[static_cast<size_t>(a)]]);
      with_orders(all, f);
      int a = n - 1;
      while (a >= 0 && ++pick[static_cast<size_t>(a)] == options[static_cast<size_t>(a)].size())
        pick[static_cast<size_t>(a--)] = 0;
      if (a < 0) return;
    }
  }

 private:
  bool splittable(Letter l) const { return can_decompose_ || !contains(rule_.whole, l); }

  bool has_partial(uint32_t set, int axis) const {
    for (size_t i = 0; i < call_.in.size(); ++i)
      if ((set >> i & 1) && call_.present[i] && call_.in[i].layout &&
          (call_.in[i].layout->partial & dist::axis_bit(axis)))
        return true;
    return false;
  }

  // Orders in which the axes of one letter may be nested: those that inputs have, else the mesh's; or all of them.
  std::vector<AxisList> orders(Letter l, AxisMask axes, bool all) const {
    AxisList in_mesh_order;
    for (size_t a = 0; a < mesh_.axes().size(); ++a)
      if (axes & dist::axis_bit(static_cast<int>(a))) in_mesh_order.push_back(static_cast<int>(a));
    std::vector<AxisList> out;
    if (all) {
      std::vector<int> p(in_mesh_order.begin(), in_mesh_order.end());
      do {
        AxisList order;
        for (int a : p) order.push_back(a);
        out.push_back(order);
      } while (std::next_permutation(p.begin(), p.end()));
      return out;
    }
    auto add = [&](const AxisList& order) {
      if (std::find(out.begin(), out.end(), order) == out.end()) out.push_back(order);
    };
    for (size_t i = 0; i < rule_.in.size(); ++i) {
      if (!call_.present[i] || !call_.in[i].layout) continue;
      for (size_t d = 0; d < rule_.in[i].size(); ++d) {
        if (!contains(rule_.in[i][d], l)) continue;
        AxisList order;
        for (int a : call_.in[i].layout->dims[d])
          if (axes & dist::axis_bit(a)) order.push_back(a);
        if (order.mask() == axes) add(order);
      }
    }
    add(in_mesh_order);
    return out;
  }

  template <class F>
  void with_orders(bool all, F&& f) {
    std::map<Letter, AxisMask> axes;
    for (size_t a = 0; a < picked_.size(); ++a)
      if (picked_[a].letter) axes[picked_[a].letter] |= dist::axis_bit(static_cast<int>(a));
    for (Letter l : rule_.even)
      if (axes.count(l) && sizes_.at(l) % mesh_.size_of(axes[l]) != 0) return;
    std::vector<std::pair<Letter, std::vector<AxisList>>> lists;
    for (auto& [l, mask] : axes) lists.emplace_back(l, orders(l, mask, all));
    std::vector<size_t> pick(lists.size(), 0);
    while (true) {
      order_.clear();
      for (size_t i = 0; i < lists.size(); ++i) order_[lists[i].first] = lists[i].second[pick[i]];
      if (ResolvedRow row = build(); exact_terms(row)) f(std::move(row));
      size_t i = 0;
      while (i < lists.size() && ++pick[i] == lists[i].second.size()) pick[i++] = 0;
      if (i == lists.size()) return;
    }
  }

  const LayoutData* operand(const OperandLetters& letters, AxisMask partial) const {
    LayoutData content;
    content.mesh = &mesh_;
    content.rank = static_cast<int8_t>(letters.size());
    for (size_t d = 0; d < letters.size(); ++d)
      for (Letter l : letters[d])
        if (auto it = order_.find(l); it != order_.end())
          for (int a : it->second) content.dims[d].push_back(a);
    content.partial = partial;
    return mesh_.intern(content);
  }

  static bool has(const OperandLetters& letters, Letter l) {
    for (const DimLetters& d : letters)
      if (contains(d, l)) return true;
    return false;
  }

  AxisMask input_partial(size_t i) const {
    AxisMask m = 0;
    for (size_t a = 0; a < picked_.size(); ++a) {
      const Choice& c = picked_[a];
      bool partial = c.linear >= 0 ? rule_.linear[static_cast<size_t>(c.linear)] >> i & 1
                                   : c.letter && contains(rule_.reduced, c.letter) && (rule_.addends >> i & 1);
      if (partial) m |= dist::axis_bit(static_cast<int>(a));
    }
    return m;
  }

  AxisMask output_partial(const OperandLetters& letters) const {
    AxisMask m = 0;
    for (size_t a = 0; a < picked_.size(); ++a) {
      const Choice& c = picked_[a];
      if (c.linear >= 0 || (c.letter && contains(rule_.reduced, c.letter) && !has(letters, c.letter)))
        m |= dist::axis_bit(static_cast<int>(a));
    }
    return m;
  }

  // A sum of bools is no bool, and terms of u8 wrap: what counts them later would count wrong.
  bool exact_terms(const ResolvedRow& row) const {
    auto narrow_terms = [](const LayoutData* l, const TensorType& type) {
      return l && l->partial && size_of(type.dtype) == 1;
    };
    for (size_t i = 0; i < row.in.size(); ++i)
      if (narrow_terms(row.in[i], call_.in[i])) return false;
    for (size_t i = 0; i < row.out.size(); ++i)
      if (narrow_terms(row.out[i], call_.out[i])) return false;
    return true;
  }

  ResolvedRow build() const {
    ResolvedRow row;
    for (size_t i = 0; i < rule_.in.size(); ++i)
      row.in.push_back(call_.present[i] ? operand(rule_.in[i], input_partial(i)) : nullptr);
    for (const OperandLetters& o : rule_.out) row.out.push_back(operand(o, output_partial(o)));
    for (const Choice& c : picked_) row.decompose |= c.letter && contains(rule_.whole, c.letter);
    return row;
  }

  const Rule& rule_;
  const RuleCall& call_;
  const dist::MeshState& mesh_;
  bool can_decompose_;
  std::map<Letter, int64_t> sizes_;
  std::vector<Choice> picked_;  // by axis
  std::map<Letter, AxisList> order_;
};

/// Smaller is better, field by field.
struct Rank {
  bool moves_parameter = false;
  int64_t bytes = 0;
  int created_partials = 0, cuts = 0, moved = 0;
  std::vector<int> which;
  auto key() const { return std::tie(moves_parameter, bytes, created_partials, cuts, moved, which); }
};

Rank rank_row(const ResolvedRow& row, const RuleCall& call) {
  Rank r;
  for (size_t i = 0; i < row.in.size(); ++i) {
    const LayoutData* now = call.in[i].layout;
    if (!row.in[i] || row.in[i] == now) continue;
    int64_t bytes = dist::plan_redistribution(call.in[i], row.in[i]).link_bytes;
    r.bytes += bytes;
    r.moves_parameter |= bytes > 0 && call.parameter[i];
    r.created_partials += std::popcount(row.in[i]->partial & ~now->partial);
    r.cuts += std::popcount(row.in[i]->split() & ~now->split() & ~now->partial);
    ++r.moved;
    r.which.push_back(static_cast<int>(i));
  }
  if (row.decompose) return r;
  for (size_t i = 0; i < row.out.size(); ++i) {
    if (!row.out[i]->partial) continue;
    TensorType type = call.out[i];
    type.layout = row.out[i];
    LayoutData reduced = *row.out[i];
    reduced.partial = 0;
    r.bytes += dist::plan_redistribution(type, row.out[i]->mesh->intern(reduced)).link_bytes;
  }
  return r;
}

}  // namespace

ResolvedRow resolve_row(const Rule& rule, const RuleCall& call, const dist::MeshState& mesh, bool can_decompose) {
  Resolver resolver(rule, call, mesh, can_decompose);
  ResolvedRow best;
  Rank best_rank;
  bool any = false;
  resolver.enumerate(false, [&](ResolvedRow&& row) {
    Rank rank = rank_row(row, call);
    if (any && !(rank.key() < best_rank.key())) return;
    any = true;
    best_rank = rank;
    best = std::move(row);
  });
  best.bytes = best_rank.bytes;
  best.moves_parameter = best_rank.moves_parameter;
  return best;
}

std::vector<ResolvedRow> legal_rows(const Rule& rule, const RuleCall& call, const dist::MeshState& mesh,
                                    bool can_decompose) {
  std::vector<ResolvedRow> out;
  Resolver(rule, call, mesh, can_decompose).enumerate(true, [&](ResolvedRow&& row) { out.push_back(std::move(row)); });
  return out;
}

}  // namespace cleave
