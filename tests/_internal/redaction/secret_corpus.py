"""Secrets of many kinds, made at run time so that no scanner trips, and texts that hold none."""

from __future__ import annotations

import base64
from random import Random
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits

ALNUM = ascii_letters + digits
WEB = ALNUM + "-_"
B64 = ALNUM + "+/"
HEX = "0123456789abcdef"
UPPER = ascii_uppercase + digits
BASE32 = ascii_uppercase + "234567"
BECH = "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"

PREFIXED = [
    ("AKIA", BASE32, 16), ("ASIA", BASE32, 16), ("AIza", WEB, 35), ("GOCSPX-", WEB, 28),
    ("ya29.", WEB, 60), ("1//0", WEB, 40), ("ghp_", ALNUM, 36), ("gho_", ALNUM, 36),
    ("ghu_", ALNUM, 36), ("ghs_", ALNUM, 36), ("ghr_", ALNUM, 36), ("github_pat_", ALNUM, 60),
    ("glpat-", WEB, 20), ("glrt-", WEB, 20), ("gldt-", WEB, 20), ("sk-", ALNUM, 48),
    ("sk-proj-", WEB, 100), ("sk-ant-api03-", WEB, 93), ("sk-ant-admin01-", WEB, 93),
    ("sk-or-v1-", HEX, 64), ("sk-lf-", HEX, 36), ("csk-", ALNUM, 48), ("xai-", ALNUM, 80),
    ("pplx-", ALNUM, 48), ("nvapi-", WEB, 64), ("tvly-", ALNUM, 32), ("hf_", ascii_letters, 34),
    ("gsk_", ALNUM, 52), ("r8_", ALNUM, 37), ("jina_", ALNUM, 60), ("lsv2_pt_", HEX, 32),
    ("pcsk_", ALNUM, 60), ("npm_", ALNUM, 36), ("pypi-AgEI", WEB, 80), ("rubygems_", HEX, 48),
    ("dckr_pat_", WEB, 27), ("ATATT3", WEB, 180), ("sgp_", HEX, 40), ("PMAK-", HEX, 59),
    ("figd_", WEB, 40), ("dapi", HEX, 32), ("dop_v1_", HEX, 64), ("doo_v1_", HEX, 64),
    ("sbp_", HEX, 40), ("tskey-auth-", ALNUM, 40), ("pul-", HEX, 40), ("pscale_tkn_", WEB, 43),
    ("sk_live_", ALNUM, 24), ("sk_test_", ALNUM, 24), ("rk_live_", ALNUM, 24),
    ("pk_live_", ALNUM, 24), ("whsec_", ALNUM, 32), ("shpat_", HEX, 32), ("shpss_", HEX, 32),
    ("shpca_", HEX, 32), ("sq0atp-", WEB, 22), ("sq0csp-", WEB, 43), ("lin_api_", ALNUM, 40),
    ("ntn_", ALNUM, 46), ("secret_", ALNUM, 43), ("NRAK-", UPPER, 27), ("glsa_", ALNUM, 32),
    ("SG.", WEB, 22), ("xkeysib-", HEX, 64), ("hvs.", WEB, 90), ("hvb.", WEB, 90),
    ("dp.pt.", ALNUM, 43), ("LTAI", ALNUM, 20), ("AKID", ALNUM, 32), ("AGE-SECRET-KEY-1", BECH, 58),
    ("sntrys_", ALNUM, 60), ("glc_", B64, 60), ("HRKU-", HEX, 36), ("fo1_", WEB, 43),
    ("nfp_", ALNUM, 36), ("key-", HEX, 32), ("rdme_", ALNUM, 70),
    ("xoxb-123456789012-123456789012-", ALNUM, 24), ("xoxp-123456789012-123456789012-", HEX, 32),
    ("xapp-1-A0123456789-1234567890123-", HEX, 64), ("EAAC", ALNUM, 90), ("sha256~", WEB, 43),
    ("sess-", ALNUM, 40), ("pa-", WEB, 43), ("BSA", WEB, 27), ("fc-", HEX, 32), ("e2b_", HEX, 40),
    ("llx-", ALNUM, 48), ("AKCp", ALNUM, 69), ("123456789:AA", WEB, 33), ("SK", HEX, 32),
]  # fmt: skip
"""Prefix, alphabet and length of what follows, by the vendors' manuals."""

BESIDE_DRAWN = [
    "AWS_SECRET_ACCESS_KEY={}", "aws_secret_access_key = {}", "export OPENAI_API_KEY={}",
    'api_key: "{}"', '"api_key": "{}"', '{{\\"apiKey\\": \\"{}\\"}}', "X-Api-Key: {}",
    "-H 'X-Auth-Token: {}'", "client_secret={}", "clientSecret: '{}'",
    "//registry.example.org/:_authToken={}", "AccountKey={};EndpointSuffix=x", "?sv=2022&sig={}",
    "Authorization: Bearer {}", '{{"Authorization": "Bearer {}"}}', "Authorization: token {}",
    "--api-key {}", "--token={}", "access_token={}&state=1", "refresh_token: {}",
    "SECRET_KEY = '{}'", "JWT_SECRET={}", "headers = {{'x-api-key': '{}'}}",
    "os.environ['GH_TOKEN'] = '{}'", "os.getenv('API_KEY', '{}')",
    "Cookie: theme=dark; sessionid={}", "Set-Cookie: sid={}; Path=/", "SharedAccessKey={}",
    "<ApiKey>{}</ApiKey>", "github_token: str = '{}'", "DJANGO_SECRET_KEY_PROD={}",
    "encryption_key={}", "signingKey={}", "private_key={}", "https://{}@github.com/x/y.git",
    'curl -H "Authorization: Bearer {}" https://x', "GITHUB_AUTH={}", "bot token: {}",
    "Ocp-Apim-Subscription-Key: {}", "X-Vault-Token: {}", "SENTRY_AUTH_TOKEN={}", "api key: {}",
    '<add key="ApiKey" value="{}" />', '{{"name": "API_KEY", "value": "{}"}}',
    "- name: API_TOKEN\n  value: {}", "ENV API_TOKEN {}", "set -x API_TOKEN {}", '#define API_KEY "{}"',
    'setx OPENAI_API_KEY "{}"', "DB_PASSWORD          {}", "| API_KEY | {} |", "BRAVE_KEY={}",
    'const TOKEN: &str = "{}";', "x-functions-key: {}", "%22token%22%3A%22{}%22%7D",
    "\x1b[32mAPI_KEY\x1b[0m=\x1b[31m{}\x1b[0m", "Private-Lines: 1\n{0}{0}\nPrivate-MAC: x",
    '{{"kty": "oct", "k": "{0}{0}"}}',
    "NPM_TOKEN={}", "PHPSESSID={}", "csrftoken={}", "consumer_secret={}", "webhook_secret: {}",
    "The API key is {}", "ENV API_KEY={}", "export default {{ token: `{}` }}", 'token := "{}"',
    'apiKey => "{}"', "  - name: API_TOKEN={}",
]  # fmt: skip
"""Texts beside which a key of a machine stands."""

BESIDE_CHOSEN = [
    "DB_PASSWORD={}", "password={}", '"password": "{}"', "password: {}", "PGPASSWORD={} psql",
    "--password {}", "--password={}", "postgres://app:{}@db:5432/x",
    "mongodb+srv://root:{}@c0.mongodb.net/", "redis://:{}@cache:6379",
    "https://bob:{}@example.com/repo.git", "machine api.example.com login bob password {}",
    "passwd = '{}'", "MYSQL_PWD={}", "DB_PASS={}", "db_pass: {}", "Server=x;Uid=sa;Pwd={};",
    "spring.datasource.password={}", "curl -u bob:{} https://x", "<password>{}</password>",
    '{{\\"password\\": \\"{}\\"}}', "sshpass -p {} ssh x", "mysql -uroot -p{} db",
    "passphrase: '{}'", "ALTER USER x PASSWORD '{}'", 'conn = connect(password="{}")',
    "MYSQL_ROOT_PASSWORD: {}", "db:5432:main:bob:{}", "password is {}", "ansible_become_pass={}",
    "DB_PASSWORD_PROD={}", "Kennwort: {}", "mot de passe : {}", "contraseña: {}", "密码: {}", "SSHPASS={} ssh x",
    "smbclient -U bob%{} //x/y", "zip -P {} x.zip y", "A temporary password is generated for root@localhost: {}",
]  # fmt: skip
"""Texts beside which a password stands."""

PASSWORDS = [
    "Tr0ub4dor{}x",
    "hunter{}hunter",
    "S3cret!{}Pw",
    "Winter20{}Sun",
    "pa55{}word9",
    "xk{}Lm9qT",
]

INNOCENT = [
    "getattr(token, 'FSTRING_END_2')", "names = ['Authorization', 'AuthorizationAppleID']",
    "re_assert_matches_pattern_str_args", "privateKey = rust_openssl.hpke.MLKEM1024P384PrivateKey",
    "git://[path[:pass]][ref@]path", "columns; pass 'float64' explicitly", "password='ve****42'",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8", "index 83db48f..bf2a1c3 100644",
    "sk-learn-compatible-api",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "max_tokens=128000",
    "integrity sha384-oqVuAfXRKap7fdgcCY5uykM6+R9GqQ8K/uxy9rx7HNQlGYl1kPzQho1wx4JwY8wC",
    "id: 123e4567-e89b-12d3-a456-426614174000", "session_id=123e4567-e89b-12d3-a456-426614174000",
    "TOKENIZER_NAME=gpt2",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ",
    "password=get_password(1)", "KEYCLOAK_URL=x", "password=get_password_from_vault(1)",
    "api_key=settings.X2", 'api_key=os.environ["OPENAI_API_KEY"]', "key=lambda x",
    'os.environ["API_KEY_2"]', "os.getenv('API_KEY2')", "OPENAI_API_KEY=lm-studio",
    "def sk_test_coverage_report():", "AKIAPACIFICREGION1 = 3", "ASIA_PACIFIC_REGION_2",
    "ghs_framework_test", "hf_transfer_enabled", "token = next(it)", "password: required",
    "password: str", "api_key: Optional[str] = None", "token: <your-token>", "password=${DB_PASS}",
    "password=$DB_PASSWORD1", "password={{ vault_password1 }}", "token=%(token)s",
    'f"Bearer {token}"', "password=None", "Authorization: Bearer $TOKEN",
    "Authorization: Bearer <token>", "Authorization: Bearer YOUR_API_KEY", "secret: true",
    "api_key=api_key", "password=self.password", "password=user.password2", "token=tokens[0]",
    "password: ********", "--password-stdin", "--token-limit=100000", "password=''", 'password=""',
    "-----BEGIN PUBLIC KEY-----", "x-api-key:", "-----BEGIN RSA PRIVATE KEY-----",
    "between -----BEGIN PRIVATE KEY----- and -----END PRIVATE KEY----- stands a key",
    "postgres://user:password@localhost/db", "postgres://$USER:$PASS@localhost/db",
    "https://user:<token>@host/x", "http://localhost:8080/path@v1", "git@github.com:org/repo.git",
    "user@example.com", "sort_key=lambda x: x[1]", "primary_key=True", "foreign_key='users.id'",
    "cache_key=9fceb02d0ae598e95dc970b74767f193", "public_key=abc", "password_hash_rounds=100000",
    "secret_name=prod/db/main1", "token_url=https://x/y1", "tokens: 12345678", "pass",
    "The password must have 8 characters", "password: at least 12 characters",
    "invalid token: identifier1 at line 3", "Unexpected token } in JSON at position 12",
    "PWD=/home/user1/work2", "OLDPWD=/tmp/x1", "bypass=enabled1", "k8s",
    "task-12345-fix-the-parser", "risk-based-authentication-2", "disk-usage-monitor-v2",
    "xoxo-hugs-and-kisses", "pk_test_primary_keys", "sk_live_streaming_enabled",
    "the bearer certificate_2026", "basic authentication_v2", "re_compile_pattern_2024",
    "key-value-store-benchmark-2", "secret_santa_generator_2025", "npm_config_registry",
    "npm_package_version_2", "glpat-is-the-prefix", "SG.is.a.prefix.of.sendgrid",
    "hvs.is-the-prefix-of-vault-tokens", "AIzaIsThePrefixOfGoogleKeys", "whsec_is_a_prefix",
    "fw_update_available_v2", "cio_example_value", "r8_is_replicate",
    "password = input('Password: ')", "password = getpass.getpass()", "token = parser.next_token()",
    "auth=None", "api_key = config['api_key2']", "token = jwt.encode(payload, key1)",
    "secret = secrets.token_hex(32)", "pat=r'\\d+1'", "https://example.com/a?token=123",
    "https://example.com/?code=200&key=name", "Cookie: theme=dark; lang=en-GB",
    "password: string (required)", '"password": {"type": "string"}', '"token": "Hello"',
    '{"name": "PASSWORD", "x": 1}', "nextToken=AbC123dEf456GhI789", "version: 1.2.3-rc4",
    "v1.0-beta-release-candidate-2", "test_token_refresh_v2()", "assert redact(secret1) == 'x'",
    "class TokenBucket2:", "import secrets", "from auth import token2", "mypass: ok",
    "password=********1", 'token="<your-token-here-123>"', "api_key: Optional[str]2",
    "gho_stbusters_theme", "rk_test_x", "credentials = Credentials.from_file(path1)",
    "auth=(user1, password1)", "password=password1", "api_key=API_KEY2",
    "SECRET_KEY=change-me-please", "password: changeme", "the secret is out",
    "a token is 4 characters", "secret sauce",
    'password = getpass.getpass("Password: ")', "token = tokens[i + 1]",
    'if token == "<|endoftext|>":',
    'tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B")',
    "max_new_tokens=512, pad_token_id=50256",
    'PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]',
    "The password must be at least 12 characters, with one digit.", "password: str | None = None",
    "def reset_password(user_id: int, token: str) -> bool:", 'SECRET_NAME="prod/db/credentials"',
    "secretKeyRef:\\n  name: db-secret\\n  key: password", "key: value",
    'primary_key=True, foreign_key="users.id"', 'api_key = os.getenv("OPENAI_API_KEY")',
    "api_key: ${{ secrets.OPENAI_API_KEY }}",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    'uuid = "123e4567-e89b-12d3-a456-426614174000"',
    "-----BEGIN PUBLIC KEY-----\\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\\n-----END PUBLIC KEY-----",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8f9a9b8c7d6e5f4a3b2c1d0e9f8a7b6c5d4e3f bob@x",
    'integrity="sha384-oqVuAfXRKap7fdgcCY5uykM6+R9GqQ8K/uxy9rx7HNQlGYl1kPzQho1wx4JwY8wC"',
    '"resolved": "https://registry.npmjs.org/foo/-/foo-1.2.3.tgz#9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"',
    "git checkout 9f86d08 && git cherry-pick 88ab4c1e2f",
    'const passwordField = document.querySelector("#password");',
    '<input type="password" name="password" placeholder="Your password">',
    "assert token.type == TokenType.IDENTIFIER", "token_type_ids: [0, 0, 0, 1, 1]",
    '"usage": {"prompt_tokens": 1219, "completion_tokens": 25, "total_tokens": 1244}',
    'key = (row["region"], row["account"])', "sort(key=lambda x: x.created_at)",
    'cache_key = f"user:{user_id}:profile"', "auth = HTTPBasicAuth(username, password)",
    "from auth.tokens import PasswordResetTokenGenerator", "Authorization: Bearer <token>",
    'curl -H "Authorization: Bearer $TOKEN" https://api.example.com',
    "export API_KEY=your-api-key-here", "The secret to good pasta is salted water.",
    "pass the salt and pepper", "passed: 12, failed: 0", "passwd: password updated successfully",
    "bypass = compute_bypass_capacitor(3.3)", "compass: north", "keyword: approximation",
    "monkey: banana123", "keyboard: qwertz-layout-de", "turkey=roasted2026",
    "hockey: icehockey2024", 'access_key_id_column = "aws_access_key_id"',
    "MONKEY_MODE=production", "AUTH_BACKEND=django.contrib.auth.backends.ModelBackend",
    "author: Jane Austen1775", "authority: Berlin10115", "code=E1101 no-member",
    "error code: ECONNREFUSED", "status_code = 404", "country_code=DE",
    "signature: (self, x: int) -> None", "def signature(): return inspect.signature(f)",
    "salt = os.urandom(16)", "private: true", '"private": true, "version": "0.1.0"',
    "session_id = uuid.uuid4()", "sessionid cookie is HttpOnly", "cookie: accept all",
    "basic understanding of calculus2", "bearer of bad news2026", "login: admin",
    "mysql -u root -p mydatabase", "docker run -p 8080:80 nginx:1.25",
    "git push $DEPLOY_TOKEN a1b2c3d4e5f60718293a4b5c6d7e8f9012345678",
    "docker run -u 1000:1000 alpine", 'curl -u "$USER:$PASS" https://x',
    "http://localhost:8888/lab?token=", "postgres://user:password@localhost:5432/db",
    "redis://localhost:6379/0", "https://user@example.com/path", "git@github.com:owner/repo.git",
    "def test_password_is_hashed_with_argon2(): pass", "AKIAIOSFODNN is a prefix of an example",
    "sk-learn 1.5.2 and sk-image 0.22", 'hf_hub_download(repo_id="x", filename="y")',
    "key-value-store-2024", "re_compile_pattern_cache = {}", "cio = io.BytesIO()",
    "secret_santa_list_2025 = []", "phx_router_helpers", "patched_version: 2024.10.1",
    "patch-2024-10-01T12-30", 'jwt.decode(token, key, algorithms=["HS256"])',
    "DSN: not configured", 'dsn = "sqlite:///./test.db"', "pw = await async_playwright().start()",
    "PW_TEST_REPORTER=line", "encryption_key_length = 256", "signing_key_id: alias/prod-signing",
    "KMS_KEY_ARN=arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab",
    'kms_key_id = "alias/aws/s3"', "s3://bucket/key=2024/part-0001.parquet",
    "partition key=region_2024", "SSH_KEY_PATH=~/.ssh/id_ed25519",
    'key_file = "/etc/ssl/private/server.key"', "TOKEN_URL=https://auth.example.com/oauth2/token",
    "token_endpoint: https://auth.example.com/oauth2/v1/token", "num_tokens: 128000",
    "next_page_token: CAUQAA", "pageToken=EAAaB1BUOkNBVQ", "csrf_token() missing in form",
    "{{ csrf_token }}", "token := scanner.Next()", "credentials: 'include'",
    "credentials = service_account.Credentials.from_service_account_file(path)",
    "pinned: black==24.10.0 --hash=sha256:949b6d4dd22f7b2ac08b0d9bb3d0b0d2",
    'data-key="item-42" class="btn"', "Passwords are stored with bcrypt (cost 12).",
    "wrong password for user 'bob'", 'password authentication failed for user "postgres"',
    "error: invalid api key provided", "pass_rate=0.9712345", "passing_score: 70percent",
    "pwd: /home/bob/project2", "commit_sha=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
    "trace_id: 4bf92f3577b34da6a3ce929d0e0e4736",
    'etag: "33a64df551425fcc55e4d42a148795d9f25f89d4"',
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ",
    '"id": "chatcmpl-9f86d081884c7d659a2feaa0"',
    '"tool_call_id": "call_abc123DEF456ghi789"', "toolu_01A09q90qw90lq917835lq9",
    "msg_01XFDUDYJgAACzvnptvVoYEL", '"request_id": "req_011CSHoEeqs5C35K2UUqR7Fy"',
    "thread_abc123XYZ", "API_KEY is missing_from_environment2", "cat token | sha256sum",
    "ssh x | base64 -d", "CACHE_KEY=9f86d081884c7d659a2feaa0",
    "S3_KEY=logs/2024/9f86d081884c7d65/part-1.gz", "seed phrase is what opens it",
    "mnemonic: first letters of each word", "sess-log-rotation-of-the-server-2024-10-01",
    "fc-cache -f -v", "pa-system-announcement-of-the-station-hall-a",
    '{"kty": "RSA", "kid": "signing-key-of-the-month", "n": "1"}',
    "TOKEN_TYPE bearer-token-of-the-client", "MAX_TOKEN 128000 by default",
    "npm login --registry=https://r.example.com/v2", "docker login registry2.example.com:5000",
    "set the token budget_of_2024_again", "az login --tenant contoso2024.example.com",
    "https://hooks.slack.com/services/YOUR/WEBHOOK/URL", "https://hooks.slack.com/services/${SLACK_TOKEN}",
    "https://maker.ifttt.com/trigger/{event}/with/key/{key}", "https://chat.example.com/hooks/xxx-generatedkey-xxx",
    "https://chat.googleapis.com/v1/spaces/SPACE_ID/messages?key=KEY&token=TOKEN",
    "https://api.github.com/repos/o/r/hooks/12345678/deliveries", "POST /api/webhooks/github 200",
    "https://github.com/o/r/blob/main/src/hooks/useAuth0Provider2.ts", ".git/hooks/pre-commit.sample",
    "https://discord.com/api/webhooks/{webhook.id}/{webhook.token}", 'app.post("/webhook/stripe", handler)',
    "12sk-learn 3gho_stbusters 4key-value-store", "step2re_compile_pattern_cache",
    'echo -e "\\e[31mtoken: ${TOKEN2}\\e[0m"', r'RE = re.compile(r"^[[0-9;]*m")',
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "\N{WOMAN}\u200d\N{GIRL} token count \N{HEAVY CHECK MARK}\ufe0f",
    "ssh login node0123.cluster.example.org", "unzip -p archive.zip readme.txt", "zip -r backup2024.zip src/",
]  # fmt: skip
"""Texts without a secret: identifiers, code, placeholders, checksums, ids, prose."""


def drawn(seed: int, alphabet: str, length: int) -> str:
    """Return a text that looks drawn at random, the same for a seed."""
    random = Random(seed)
    return "".join(random.choice(alphabet) for _ in range(length))


def prefixed(seed: int) -> list[tuple[str, str, str]]:
    """Return kind, text and secret of each vendor's key."""
    out = []
    for i, (prefix, alphabet, length) in enumerate(PREFIXED):
        body = drawn(seed * 1000 + i, alphabet, length)
        body = body[:10] + "x" + body[11:-1] + "y" if alphabet is WEB else body
        tail = f".{drawn(seed + i, WEB, 43)}" if prefix == "SG." else ""
        out.append((prefix, f"it is {prefix}{body}{tail} there", body))
    return out


def beside(seed: int) -> list[tuple[str, str, str]]:
    """Return kind, text and secret of each way to write one beside a name."""
    out = []
    for i, form in enumerate(BESIDE_DRAWN):
        key = drawn(
            seed * 1000 + i, [HEX, ALNUM, UPPER, ascii_lowercase + digits][i % 4], 20 + seed % 20
        )
        out.append((form, form.format(key), key))
    for i, form in enumerate(BESIDE_CHOSEN):
        word = PASSWORDS[(seed + i) % len(PASSWORDS)].format(drawn(seed + i, digits, 2))
        word = word.replace("!", "_") if "://" in form else word
        out.append((form, form.format(word), word))
    return out


def block(seed: int, kind: str = "RSA PRIVATE KEY", gap: str = "\n", lines: int = 12) -> str:
    """Return a block of a private key."""
    body = gap.join(drawn(seed * 100 + i, B64, 64) for i in range(lines))
    return f"-----BEGIN {kind}-----{gap}{body}{gap}-----END {kind}-----"


def basic(seed: int) -> str:
    """Return a user and a password as HTTP's Basic scheme sends them (RFC 7617)."""
    return base64.b64encode(f"bob:{drawn(seed, ALNUM, 12)}".encode()).decode()
