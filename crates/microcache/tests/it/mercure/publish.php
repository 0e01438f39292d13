<?php
// Publishes by Symfony's Mercure component what an application would: php publish.php HUB SECRET
require_once 'Symfony/Component/Mercure/autoload.php';

use Symfony\Component\Mercure\Hub;
use Symfony\Component\Mercure\HubRegistry;
use Symfony\Component\Mercure\Jwt\FactoryTokenProvider;
use Symfony\Component\Mercure\Jwt\StaticTokenProvider;
use Symfony\Component\Mercure\Jwt\TokenFactoryInterface;
use Symfony\Component\Mercure\Update;

/** Makes the tokens: Debian has no package of the library that the component would use. */
final class Factory implements TokenFactoryInterface
{
    public function __construct(private string $secret)
    {
    }

    public function create(?array $subscribe = [], ?array $publish = [], array $additionalClaims = []): string
    {
        $claims = $additionalClaims + ['exp' => time() + 60, 'mercure' => ['publish' => $publish, 'subscribe' => $subscribe]];
        $claims['exp'] = $claims['exp'] instanceof DateTimeInterface ? $claims['exp']->getTimestamp() : $claims['exp'];
        $coded = fn (string $text) => rtrim(strtr(base64_encode($text), '+/', '-_'), '=');
        $signed = $coded(json_encode(['alg' => 'HS512', 'typ' => 'JWT'])).'.'.$coded(json_encode($claims));

        return $signed.'.'.$coded(hash_hmac('sha512', $signed, $this->secret, true));
    }
}

[, $url, $secret] = $argv;
$factory = new Factory($secret);
$hub = new Hub($url, new FactoryTokenProvider($factory, [], ['*']), $factory);
$ids = [
    $hub->publish(new Update('https://example.com/books/1', json_encode(['status' => 'OutOfStock']))),
    $hub->publish(new Update(['https://example.com/books/2', 'https://example.com/users/7'], "two\nlines é +&=", true, 'urn:test:2', 'sold', 30)),
];
// Who may not publish is told so by an exception.
try {
    (new Hub($url, new StaticTokenProvider($factory->create([], ['https://example.com/books/{id}']))))->publish(new Update('https://example.com/users/1', ''));
} catch (Symfony\Component\Mercure\Exception\RuntimeException $exception) {
    $ids[] = $exception->getPrevious()->getCode();
}

// The cookie for a browser that may read what is private, as the component sets it.
$request = Symfony\Component\HttpFoundation\Request::create($url);
$cookie = (new Symfony\Component\Mercure\Authorization(new HubRegistry($hub)))->createCookie($request, ['https://example.com/users/{id}']);
echo json_encode(['ids' => $ids, 'cookie' => $cookie->getName().'='.$cookie->getValue(), 'path' => $cookie->getPath()]);
