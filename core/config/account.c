#include "config/account.h"

#include <math.h>

#define TERMS_MAX 1000
/* Bounds of rounding errors. MOMENT_ERROR: of a moment's logarithm, divided by the order; most of it comes from
 * binomial coefficients. ROUNDED_UP: a factor for epsilon. */
#define MOMENT_ERROR 4e-15
#define ROUNDED_UP (1 + 1e-9)

/* 1.1, 1.2 ... 10.9, 11, 12 ... 63, 128, 256, 512, 1024 */
static double order_at(int i)
{
  if (i < 99) return 1 + (i + 1) / 10.0;
  return i < 152 ? i - 88 : ldexp(128, i - 152);
}

static double add_logs(double a, double b)
{
  const double high = fmax(a, b), low = fmin(a, b);
  return low == -INFINITY ? high : high + log1p(exp(low - high));
}

static double log_gamma(double x)
{
  int sign;
  return lgamma_r(x, &sign); /* unlike lgamma, it writes no global variable */
}

/* The logarithm of the absolute value of a binomial coefficient. */
static double log_choose(double n, double k)
{
  return log_gamma(n + 1) - log_gamma(k + 1) - log_gamma(n - k + 1);
}

/* Uses the asymptotic series if erfc would underflow; at 20 its error is below 1e-11. */
static double log_erfc(double x)
{
  if (x < 20) return log(erfc(x));
  const double y = 1 / (2 * x * x);
  return -x * x - log(x * sqrt(M_PI)) + log1p(-y * (1 - 3 * y * (1 - 5 * y * (1 - 7 * y))));
}

static double log_moment_whole(double q, double z, int order)
{
  double sum = -INFINITY;
  for (int i = 0; i <= order; i++)
    sum =
        add_logs(sum, log_choose(order, i) + i * log(q) + (order - i) * log1p(-q) + (double)i * (i - 1) / (2 * z * z));
  return sum;
}

/* Section 3.3 of the paper: two series, for the two halves of the integral. All terms are added with their magnitudes,
 * as dp-accounting does, which gives an upper bound. */
static double log_moment_fractional(double q, double z, double order)
{
  const double half = z * z * log(1 / q - 1) + 0.5, root = sqrt(2) * z;
  double sum = -INFINITY, last[2] = {-INFINITY, -INFINITY};
  for (int i = 0; i < TERMS_MAX; i++) {
    const double j = order - i, choose = log_choose(order, i);
    const double low = choose + i * log(q) + j * log1p(-q) + (double)i * (i - 1) / (2 * z * z) + log(0.5) +
                       log_erfc((i - half) / root),
                 high = choose + j * log(q) + i * log1p(-q) + j * (j - 1) / (2 * z * z) + log(0.5) +
                        log_erfc((half - j) / root);
    sum = add_logs(add_logs(sum, low), high);
    if (low < last[0] && high < last[1] && fmax(low, high) < sum - 30) return sum;
    last[0] = low;
    last[1] = high;
  }
  return INFINITY; /* this order gives no bound */
}

static double rdp_of_round(double q, double z, double order)
{
  if (q >= 1) return order / (2 * z * z);
  const double moment = order == floor(order) ? log_moment_whole(q, z, (int)order) : log_moment_fractional(q, z, order);
  return (fmax(0, moment) + MOMENT_ERROR * order) / (order - 1);
}

void brim_account_make(brim_account *account, double rate, double noise_multiplier)
{
  for (int i = 0; i < BRIM_ACCOUNT_ORDERS; i++) account->rdp[i] = rdp_of_round(rate, noise_multiplier, order_at(i));
}

double brim_account_epsilon(const brim_account *account, int64_t rounds, double delta)
{
  double least = INFINITY;
  if (rounds <= 0) return 0;
  for (int i = 0; i < BRIM_ACCOUNT_ORDERS; i++) {
    const double order = order_at(i), rdp = (double)rounds * account->rdp[i];
    if (isnan(rdp)) continue;
    if (delta * delta + expm1(-rdp) > 0) return 0; /* from the Kullback-Leibler divergence, which is at most rdp */
    least = fmin(least, rdp + log1p(-1 / order) - log(delta * order) / (order - 1));
  }
  return fmax(0, least) * ROUNDED_UP;
}
