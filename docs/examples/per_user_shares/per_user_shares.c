/* Divides a machine among its users: a run takes at most the share of the user who started it.
 *
 *     shares: {each: {alice: 0.5, bob: 0.25}, cuda:0: {bob: 8000MB}}    a device's own row overrides `each`
 *     default_share: 0.1                                                for all other users; 0 forbids them to train
 *
 * Among several devices the policy chooses the one where most of the share is free. The limit is per run: see
 * README.md. */
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <brim/plugin.h>
#include <brim/policy.h>

typedef struct per_user_shares {
  brim_shares shares;
  double default_share;
  const char *user;
} per_user_shares;

static const brim_param table[] = {
    BRIM_PARAM(SHARES, per_user_shares, shares, "{}", NULL, "share of each user: {each: {alice: 0.5, bob: 8000MB}}"),
    BRIM_PARAM(F64, per_user_shares, default_share, "0", "[0,1]", "share of users not in the table"),
    BRIM_PARAM(STR, per_user_shares, user, "", NULL, "user whose share applies; empty: the owner of the process"),
    BRIM_PARAMS_END,
};

/* Returns the row of a user for a device, or NULL. */
static const brim_share *find_share(const per_user_shares *p, const brim_device_view *d, const char *user)
{
  const brim_share *found = NULL;
  for (size_t i = 0; i < p->shares.count; i++) {
    const brim_share *share = &p->shares.item[i];
    const int is_own = strcmp(share->of, d->name) == 0;
    if (strcmp(share->who, user) != 0 || (!is_own && strcmp(share->of, "each") != 0)) continue;
    if (!found || is_own) found = share;
  }
  return found;
}

static uint64_t bytes_of(const per_user_shares *p, const brim_device_view *d, const brim_share *share)
{
  if (share && share->bytes > 0) return share->bytes < d->total_bytes ? share->bytes : d->total_bytes;
  return (uint64_t)((share ? share->fraction : p->default_share) * (double)d->total_bytes);
}

/* Fails if the shares of a device add up to more than its memory. */
static brim_status check_device(const per_user_shares *p, const brim_device_view *d)
{
  uint64_t sum = 0;
  char a[32], b[32];
  for (size_t i = 0; i < p->shares.count; i++) {
    const brim_share *share = &p->shares.item[i];
    if (find_share(p, d, share->who) == share) sum += bytes_of(p, d, share);
  }
  if (sum <= d->total_bytes) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "policy.per_user_shares.shares: the shares of %s add up to %s, but it has %s", d->name,
                   brim_format_bytes(a, sizeof a, sum), brim_format_bytes(b, sizeof b, d->total_bytes));
}

static void find_user(const per_user_shares *p, char *name, size_t room)
{
  const struct passwd *me = getpwuid(geteuid()); /* not $USER, which any user can change */
  if (p->user[0] || me)
    snprintf(name, room, "%s", p->user[0] ? p->user : me->pw_name);
  else
    snprintf(name, room, "%u", (unsigned)geteuid());
}

static brim_status choose_device(void *self, const brim_device_query *q, brim_place *out)
{
  const per_user_shares *p = self;
  const char *asked = q->demands->device;
  uint64_t most = 0;
  char user[64], a[32];
  find_user(p, user, sizeof user);
  for (size_t i = 0; i < q->count; i++) {
    const brim_device_view *d = &q->device[i];
    const uint64_t share = bytes_of(p, d, find_share(p, d, user)), free = share < d->free_bytes ? share : d->free_bytes;
    BRIM_TRY(check_device(p, d));
    if (share == 0 || (strcmp(asked, "auto") != 0 && strcmp(asked, d->name) != 0)) continue;
    if (out->limit_bytes > 0 && free <= most) continue;
    most = free;
    out->kind = BRIM_PLACE_DEVICE;
    out->device = (int32_t)i;
    out->limit_bytes = share;
    brim_reason(out->reason, "the share of user '%s', of %s", user, brim_format_bytes(a, sizeof a, d->total_bytes));
  }
  if (out->limit_bytes > 0) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG,
                   "user '%s' has no share of %s\n"
                   "add the user to policy.per_user_shares.shares, or set default_share for all users not listed",
                   user, strcmp(asked, "auto") != 0 ? asked : "any device");
}

static const brim_policy_ops ops = {.size = sizeof ops, .choose_device = choose_device, .limits = 1};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_POLICY,
                                   .id = "per_user_shares",
                                   .help = "limits a run to its user's share of a device",
                                   .params_size = sizeof(per_user_shares),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("per_user_shares", "1.0", plugins)
